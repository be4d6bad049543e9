// The judging of one row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/distance.hpp"
#include "check/row_parts.hpp"
#include "seriatim/check.hpp"

namespace seriatim {

constexpr unsigned promise_bit(Promise promise) { return 1u << static_cast<unsigned>(promise); }

struct RowOutcome {
  unsigned judged = 0;  // a bit per promise that this row could have broken
  unsigned faults = 0;
  bool near = false;
  double near_margin = 0.0;
};

// One worker's judge. It takes all its memory with the first rows.
class RowJudge {
 public:
  RowJudge(const Geometry& geometry, RowUnit unit, RowRule rule, double margin)
      : geometry_(geometry), unit_(unit), rule_(rule), margin_(margin) {}

  // Takes   entries as the engine wrote them; scores of the complete groups, or none (`scored` false)
  // Gives   findings appended, one per promise at most, in the order of the promises
  // Errors  NotANumber. OutOfMemory is thrown.
  Result<RowOutcome> judge(std::int64_t row, VisibleRun run, std::span<const std::int64_t> entries,
                           std::span<const float> scores, bool scored, std::vector<Finding>& findings);

 private:
  bool is_canonical(std::span<const std::int64_t> entries) const;
  void judge_entries(std::span<const std::int64_t> entries);
  void judge_tail(std::span<const std::int64_t> entries);
  void judge_width();
  void judge_expansion();
  void judge_togetherness();
  void judge_order();
  void judge_membership();
  void report_exchange(Promise promise, std::int64_t chosen, std::int64_t left_out, std::int64_t groups);
  bool in_order(std::int64_t before, std::int64_t group) const;
  float score_of(std::int64_t group) const { return scores_[static_cast<std::size_t>(group)]; }
  void report(Finding finding);
  unsigned judgeable() const;

  const Geometry geometry_;
  const RowUnit unit_;
  const RowRule rule_;
  const double margin_;

  // Of the row in work.
  std::int64_t row_ = -1;
  RowFrame frame_;
  std::span<const float> scores_;
  bool scored_ = false;
  RowOutcome outcome_;
  std::vector<Finding>* findings_ = nullptr;

  RowParts parts_;
  std::vector<std::int32_t> chosen_;  // the canonical set, where there are scores
  std::vector<std::int32_t> scratch_;
  std::vector<PlacedUnit> by_entry_;  // good units in the row's own order
  std::vector<std::int64_t> last_place_;
  std::vector<const HeldGroup*> by_first_entry_;
  std::vector<std::int64_t> intruders_;  // chosen but not due
  std::vector<std::int64_t> left_out_;   // due but not chosen
};

}  // namespace seriatim
