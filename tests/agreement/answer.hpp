// Answer: what the path gives for a problem, computed in one of many ways that must all give the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "agreement/problem.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/step.hpp"
#include "support/foreign_float_environment.hpp"

namespace seriatim::agreement {

// What is compared, each by a digest of its own.
enum class Part : std::uint8_t { kPooled, kScores, kRows, kOutput, kLse };
inline constexpr std::array kParts{Part::kPooled, Part::kScores, Part::kRows, Part::kOutput, Part::kLse};
const char* part_name(Part part);

enum class Batch : std::uint8_t {
  kTogether,    // all queries of a step in one call
  kAlone,       // a call per query
  kNeighbours,  // in another order, each more than once
  kAsks,        // as kNeighbours, an ask for each, all in one call
};

// Who keeps the keys and values.
enum class Memory : std::uint8_t {
  kCache,  // a cache, and the index
  kArray,  // the caller, as arrays; the index alone is a cache's
  kPages,  // the caller, in pages of 16 tokens
};

// On the first device of a backend that keeps the bits, by work-groups of so many lanes; "emulated" is CUDA without a
// GPU.
struct DeviceWay {
  std::string backend;  // empty: none
  std::int64_t work_group = 0;
};

// When the executor of a way in a foreign floating-point environment was made.
enum class Pool : std::uint8_t {
  kBefore,  // before it was set: Way::executor
  kDuring,  // while it is set
  kAfter,   // while it was set, and the calls are made when it no longer is
};

struct Way {
  Kernels kernels = Kernels::reference();
  Executor* executor = nullptr;
  int threads = 1;
  Batch batch = Batch::kTogether;
  Memory memory = Memory::kCache;
  DeviceWay device = {};                               // with a backend: there, not on the host
  testing::Foreign foreign = testing::Foreign::kNone;  // what other software left the calling thread in
  Pool pool = Pool::kBefore;
  Screening screening = Screening::kAutomatic;
  int ranks = 0;           // spread over so many; 0: one process
  std::int64_t chunk = 0;  // so many tokens are appended, and their queries asked before the commit; 0: all at once

  std::string name() const;
};

struct Answer {
  std::array<std::vector<std::byte>, kParts.size()> parts;
  std::array<std::int64_t, kParts.size()> values{};  // how many i32 or floats each part holds

  const std::vector<std::byte>& of(Part part) const { return parts[static_cast<std::size_t>(part)]; }
  std::int64_t values_of(Part part) const { return values[static_cast<std::size_t>(part)]; }
  std::int64_t sparse_rows = 0;  // rows that leave something out
};

// Errors  those of the path; Corrupt where the kernels that ran are not those of `way`, or a query that was asked twice
//         got two answers, or a call that changed the thread's floating-point modes or flags.
Result<Answer> answer(const Problem& problem, const Way& way);

}  // namespace seriatim::agreement
