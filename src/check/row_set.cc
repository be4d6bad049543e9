// The set and its order: membership, tie, order.

#include <algorithm>

#include "base/format.hpp"
#include "check/row_judge.hpp"

namespace seriatim {

// Chosen groups that are not due face groups that are due and not chosen. Where there are more of one kind than of the
// other, another promise has said why (a width, a broken group, a dropped entry), so the most charitable pairs are
// judged: those nearest to the cut.
void RowJudge::judge_membership() {
  if (!scored_ || frame_.groups <= frame_.kept || frame_.kept == 0) return;
  intruders_.clear();
  left_out_.clear();
  auto due = chosen_.begin();
  float cut = score_of(chosen_.front());
  for (const std::int32_t group : chosen_) cut = std::min(cut, score_of(group));
  for (const HeldGroup& held : parts_.groups) {
    for (; due != chosen_.end() && *due < held.group; ++due) left_out_.push_back(*due);
    const bool is_due = due != chosen_.end() && *due == held.group;
    if (is_due) ++due;
    if (!is_due && !held.broken) intruders_.push_back(held.group);
  }
  left_out_.insert(left_out_.end(), due, chosen_.end());
  const std::size_t pairs = std::min(intruders_.size(), left_out_.size());
  if (pairs == 0) return;

  const auto from_cut = [&](std::int64_t group) {
    return relative_distance(static_cast<double>(score_of(group)), static_cast<double>(cut));
  };
  const auto nearer = [&](std::int64_t a, std::int64_t b) { return from_cut(a) < from_cut(b); };
  std::stable_sort(intruders_.begin(), intruders_.end(), nearer);
  std::stable_sort(left_out_.begin(), left_out_.end(), nearer);
  const auto at_cut = [&](const std::vector<std::int64_t>& groups) {
    return static_cast<std::size_t>(std::count_if(groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(pairs),
                                                  [&](std::int64_t g) { return score_of(g) == cut; }));
  };
  const std::size_t ties = std::min(at_cut(intruders_), at_cut(left_out_));
  const double farthest = std::max(from_cut(intruders_[pairs - 1]), from_cut(left_out_[pairs - 1]));
  // A better group left out, unless all that differ beyond the ties lie within the margin.
  if (ties < pairs && farthest > margin_) {
    report_exchange(Promise::kMembership, intruders_[pairs - 1], left_out_[pairs - 1],
                    static_cast<std::int64_t>(pairs - ties));
  } else if (ties < pairs) {
    outcome_.near = true;
    outcome_.near_margin = farthest;
  }
  if (ties > 0) report_exchange(Promise::kTie, intruders_[0], left_out_[0], static_cast<std::int64_t>(ties));
}

void RowJudge::report_exchange(Promise promise, std::int64_t chosen, std::int64_t left_out, std::int64_t groups) {
  const float score = score_of(chosen);
  const float other = score_of(left_out);
  const HeldGroup* held = parts_.find(chosen);
  report(
      {.promise = promise,
       .entry = held->entry,
       .entries = groups,
       .token = frame_.first_value + chosen * frame_.unit,
       .group = chosen,
       .other = left_out,
       .score = score,
       .other_score = other,
       .scored = true,
       .margin = relative_distance(static_cast<double>(score), static_cast<double>(other)),
       .what = promise == Promise::kTie
                   ? formatted("groups {} and {} both score {}; the later was chosen", left_out, chosen, score)
                   : formatted("group {} was chosen at {}, group {} left out at {}", chosen, score, left_out, other)});
}

bool RowJudge::in_order(std::int64_t before, std::int64_t group) const {
  if (rule_ == RowRule::kCanonical) return before < group;
  if (rule_ != RowRule::kRank) return true;
  const float a = score_of(before);
  const float b = score_of(group);
  if (a == b) return before < group;
  return a > b || relative_distance(static_cast<double>(a), static_cast<double>(b)) <= margin_;
}

// Of units that were repeated the place says nothing, so their groups are left out.
void RowJudge::judge_order() {
  if ((outcome_.judged & promise_bit(Promise::kOrder)) == 0) return;
  Finding finding{.promise = Promise::kOrder, .entries = 0};
  const auto note = [&](std::int64_t entry, std::int64_t unit, std::string_view than) {
    if (finding.entries++ > 0 && entry >= finding.entry) return;  // the first entry at fault stands for all
    finding.entry = entry;
    finding.token = frame_.first_value + unit;
    finding.group = unit / frame_.unit;
    finding.what = formatted("entry {} is {}, and {}", entry, finding.token, than);
  };
  by_first_entry_.clear();
  for (const HeldGroup& group : parts_.groups) {
    if (!group.doubled) by_first_entry_.push_back(&group);
  }
  std::sort(by_first_entry_.begin(), by_first_entry_.end(),
            [](const HeldGroup* a, const HeldGroup* b) { return a->entry < b->entry; });
  for (std::size_t i = 1; i < by_first_entry_.size(); ++i) {
    const std::int64_t before = by_first_entry_[i - 1]->group;
    const HeldGroup& group = *by_first_entry_[i];
    if (in_order(before, group.group)) continue;
    note(group.entry, group.group * frame_.unit,
         formatted("group {} {}", before, rule_ == RowRule::kRank ? "before it ranks lower" : "stands before it"));
  }
  for (std::size_t i = 1; i < parts_.units.size(); ++i) {
    const PlacedUnit& a = parts_.units[i - 1];
    const PlacedUnit& b = parts_.units[i];
    const HeldGroup* group = parts_.find(b.unit / frame_.unit);
    const bool same = group != nullptr ? a.unit / frame_.unit == group->group : a.unit >= frame_.groups * frame_.unit;
    if (!same || a.entry < b.entry || (group != nullptr ? group->doubled : parts_.tail_doubled)) continue;
    note(a.entry, a.unit, "a later token stands before it");
  }
  if (finding.entries > 0) report(std::move(finding));
}

}  // namespace seriatim
