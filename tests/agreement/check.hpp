// Checker: one case after another, in every way, against the digests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agreement/answer.hpp"
#include "agreement/cases.hpp"
#include "agreement/digest_file.hpp"

namespace seriatim::agreement {

enum class Extent : std::uint8_t {
  kFull,   // every case in every way
  kQuick,  // the quick cases; the fastest kernels and the reference in every way, the others once
  kLean,  // the quick cases; each kernels once and one-token decode with the first, flips in small cases: for emulators
};

class Checker {
 public:
  Checker(const DigestFile& file, Extent extent);

  // Prints one line, and one for each difference.
  void check(const Case& one);
  // Prints what was compared and closes with "N passed, M failed"; writes it to `path` too, where one is given.
  // Errors  Io.
  Status finish(const std::string& path) const;
  bool agrees() const { return failed_ == 0 && passed_ > 0 && values_ > 0; }

 private:
  std::vector<Way> ways() const;
  void add_foreign_ways(std::vector<Way>& ways) const;
  void add_device_ways(std::vector<Way>& ways) const;
  bool check_case(const Case& one);
  bool check_inputs(const Case& one, const Problem& problem);
  bool check_answer(const Case& one, const Problem& problem, const Way& way, const Answer& got);
  std::string where(const Problem& problem, const Answer& got, Part part) const;
  bool check_flips(const Case& one, const Problem& problem, const Answer& right);
  bool report(const std::string& what);

  const DigestFile& file_;
  const Extent extent_;
  const std::vector<Kernels> kernels_;
  std::array<std::unique_ptr<Executor>, 4> executors_;
  std::int64_t passed_ = 0;  // cases
  std::int64_t failed_ = 0;
  std::int64_t left_out_ = 0;
  std::int64_t answers_ = 0;  // cases x ways
  std::int64_t digests_ = 0;
  std::int64_t values_ = 0;
  std::int64_t flips_ = 0;
};

// Computes a case by the reference and puts its digests into `file`.
// Errors  those of the path; Corrupt: a case without a sparse row, or with a part of nothing.
Status write_case(const Case& one, DigestFile& file);

}  // namespace seriatim::agreement
