// The tool's commands. Each gives its exit code: 0 it agrees, 1 it does not, 2 the input is bad.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "seriatim/check.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"

namespace seriatim::cli {

inline constexpr int kAgrees = 0;
inline constexpr int kDisagrees = 1;
inline constexpr int kBadInput = 2;

struct RunOptions {
  std::string capture;
  std::string out;  // empty: none
  std::string html;
  bool json = false;
  int threads = 0;  // 0: as many as the process may use
  double margin = -1.0;
  std::string device;  // empty: the host
  bool mpi = false;
  double timeout = 60.0;  // seconds that an MPI rank waits for another
};
int run(const RunOptions& options);

struct SelectOptions {
  std::string scores;
  std::optional<std::int64_t> visible;
  std::int64_t group_tokens = 4;
  std::int64_t budget_tokens = 2048;
  std::int64_t anchor = 0;
  NanPolicy nan = NanPolicy::kRefuse;
  std::string out;  // empty: a summary on the terminal
};
int select(const SelectOptions& options);

struct CheckCommand {
  std::string dump;
  std::string against;  // empty: none
  std::string json;
  std::string html;
  std::string png;
  std::string explain;  // a promise
  RowRule rule = RowRule::kCanonical;
  double margin = -1.0;
  std::int64_t findings = 100;
  int threads = 0;
};
int check(const CheckCommand& command);

// What is in a cache's file; whether it is whole (1: it is not).
int cache_info(const std::string& file);
int cache_verify(const std::string& path);

// What devices there are and what each promises.
int devices();

// Prints one line on stderr and gives kBadInput.
int refuse(const Status& status);

}  // namespace seriatim::cli
