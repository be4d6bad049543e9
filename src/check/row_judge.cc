#include "check/row_judge.hpp"

#include <algorithm>
#include <cmath>

#include "base/format.hpp"
#include "seriatim/row.hpp"
#include "seriatim/select.hpp"

namespace seriatim {

Result<RowOutcome> RowJudge::judge(std::int64_t row, VisibleRun run, std::span<const std::int64_t> entries,
                                   std::span<const float> scores, bool scored, std::vector<Finding>& findings) {
  row_ = row;
  frame_ = frame_of(geometry_, unit_, run);
  scores_ = scores;
  scored_ = scored;
  findings_ = &findings;
  outcome_ = {};
  outcome_.judged = judgeable();
  if (scored) {
    chosen_.resize(static_cast<std::size_t>(frame_.kept));
    scratch_.resize(static_cast<std::size_t>(select_scratch_entries(frame_.groups)));
    const auto count = select_groups(scores, geometry_.budget_groups(), NanPolicy::kRefuse, scratch_, chosen_, row);
    if (!count.ok()) return count.status();
  }
  if (is_canonical(entries) && rule_ != RowRule::kRank) return outcome_;
  parts_.sort_out(frame_, rule_, entries);
  by_entry_.assign(parts_.units.begin(), parts_.units.end());
  std::sort(by_entry_.begin(), by_entry_.end(),
            [](const PlacedUnit& a, const PlacedUnit& b) { return a.entry < b.entry; });
  judge_entries(entries);
  judge_width();
  judge_expansion();
  judge_tail(entries);
  judge_membership();
  judge_order();
  return outcome_;
}

// Promises that this row could break. Which of them can be judged depends on what was given.
unsigned RowJudge::judgeable() const {
  unsigned bits = promise_bit(Promise::kRange) | promise_bit(Promise::kDuplicate);
  const bool dense = frame_.visible < geometry_.budget_tokens() + geometry_.group_tokens();
  bits |= promise_bit(dense ? Promise::kDense : Promise::kWidth);
  if (frame_.unit > 1 && frame_.groups > 0) bits |= promise_bit(Promise::kExpansion);
  if (frame_.tail > 0 || frame_.partial_group) bits |= promise_bit(Promise::kTail);
  if (scored_ && frame_.groups > frame_.kept) bits |= promise_bit(Promise::kMembership) | promise_bit(Promise::kTie);
  if (rule_ == RowRule::kCanonical || rule_ == RowRule::kArrival || (rule_ == RowRule::kRank && scored_)) {
    bits |= promise_bit(Promise::kOrder);
  }
  return bits;
}

// The quick way: the row is right to the letter. Without scores any ascending whole groups are, if there are enough.
bool RowJudge::is_canonical(std::span<const std::int64_t> entries) const {
  if (std::ssize(entries) < frame_.due()) return false;
  const std::int64_t* at = entries.data();
  std::int64_t previous = -1;
  for (std::int64_t i = 0; i < frame_.kept; ++i) {
    const std::int64_t unit = *at - frame_.first_value;
    const std::int64_t group = unit / frame_.unit;
    if (*at < frame_.first_value || group >= frame_.groups || group <= previous || unit != group * frame_.unit)
      return false;
    if (scored_ && group != chosen_[static_cast<std::size_t>(i)]) return false;
    for (std::int64_t k = 1; k < frame_.unit; ++k) {
      if (at[k] != at[0] + k) return false;
    }
    at += frame_.unit;
    previous = group;
  }
  for (std::int64_t k = 0; k < frame_.tail; ++k) {
    if (*at++ != frame_.first_value + frame_.groups * frame_.unit + k) return false;
  }
  return std::all_of(at, entries.data() + entries.size(), [](std::int64_t entry) { return entry == kRowPadding; });
}

void RowJudge::report(Finding finding) {
  finding.row = row_;
  outcome_.faults |= promise_bit(finding.promise);
  findings_->push_back(std::move(finding));
}

// range and duplicate
void RowJudge::judge_entries(std::span<const std::int64_t> entries) {
  Finding range{.promise = Promise::kRange, .entries = 0};
  for (std::size_t i = 0; i < parts_.kinds.size(); ++i) {
    const EntryKind kind = parts_.kinds[i];
    if (kind == EntryKind::kGood || kind == EntryKind::kPadding || kind == EntryKind::kRepeated ||
        kind == EntryKind::kScoredTail)
      continue;
    if (range.entries++ > 0) continue;
    range.entry = static_cast<std::int64_t>(i);
    range.token = entries[i];
    const char* where = kind == EntryKind::kHole       ? "padding before the row's end"
                        : kind == EntryKind::kNegative ? "negative, and not padding"
                        : kind == EntryKind::kPast     ? "before the first visible token"
                                                       : "after the last visible one";
    range.what = formatted("entry {} is {}: {}", i, entries[i], where);
  }
  if (range.entries > 0) report(std::move(range));
  if (parts_.repeated == 0) return;
  const std::int64_t value = entries[static_cast<std::size_t>(parts_.first_repeated)];
  report({.promise = Promise::kDuplicate,
          .entry = parts_.first_repeated,
          .entries = parts_.repeated,
          .token = value,
          .group = (value - frame_.first_value) / frame_.unit,
          .what = formatted("entry {} is {}, which the row has already", parts_.first_repeated, value)});
}

// width, or dense where the budget does not bind. Entries that were dropped and broken groups may stand for groups due.
void RowJudge::judge_width() {
  const std::int64_t least = parts_.whole + parts_.broken_units / frame_.unit;
  const std::int64_t most =
      parts_.whole + (parts_.broken_units + frame_.unit - 1) / frame_.unit + parts_.dropped_groups_part / frame_.unit;
  if (least <= frame_.kept && frame_.kept <= most) return;
  if ((outcome_.judged & promise_bit(Promise::kDense)) == 0) {
    report({.promise = Promise::kWidth,
            .entries = std::abs(frame_.due() - parts_.live),
            .what = formatted("{} entries of {} whole groups where {} of {} are due", parts_.live, parts_.whole,
                              frame_.due(), frame_.kept)});
    return;
  }
  std::int64_t group = 0;
  for (const HeldGroup& held : parts_.groups) group += held.group == group ? 1 : 0;
  report({.promise = Promise::kDense,
          .entries = (frame_.kept - parts_.whole) * frame_.unit,
          .group = group,
          .what = formatted("group {} is visible, fits the budget and is not in the row", group)});
}

void RowJudge::judge_expansion() {
  if (frame_.unit == 1) return;
  for (const HeldGroup& group : parts_.groups) {
    if (!group.broken) continue;
    report({.promise = Promise::kExpansion,
            .entry = group.entry,
            .entries = parts_.broken,
            .token = frame_.first_value + group.group * frame_.unit,
            .group = group.group,
            .what = formatted("group {} has {} of its {} tokens", group.group, group.present, frame_.unit)});
    return;
  }
  if (rule_ == RowRule::kSet) return;
  judge_togetherness();
}

// Do the tokens of each group stand side by side, leaving out what belongs to no group?
void RowJudge::judge_togetherness() {
  last_place_.assign(parts_.groups.size(), -1);
  Finding apart{.promise = Promise::kExpansion, .entries = 0};
  std::int64_t place = 0;
  for (const PlacedUnit& placed : by_entry_) {
    const HeldGroup* group = parts_.find(placed.unit / frame_.unit);
    if (group == nullptr || group->doubled) continue;  // the tail; a unit that stands elsewhere too
    std::int64_t& last = last_place_[static_cast<std::size_t>(group - parts_.groups.data())];
    const bool together = last < 0 || last + 1 == place;
    last = place++;
    if (together || apart.entries++ > 0) continue;
    apart.entry = placed.entry;
    apart.token = frame_.first_value + placed.unit;
    apart.group = group->group;
    apart.what = formatted("the tokens of group {} do not stand together", group->group);
  }
  if (apart.entries > 0) report(std::move(apart));
}

void RowJudge::judge_tail(std::span<const std::int64_t> entries) {
  const auto scored = std::find(parts_.kinds.begin(), parts_.kinds.end(), EntryKind::kScoredTail);
  if (scored != parts_.kinds.end()) {
    const std::int64_t entry = scored - parts_.kinds.begin();
    report({.promise = Promise::kTail,
            .entry = entry,
            .group = entries[static_cast<std::size_t>(entry)],
            .what = formatted("entry {} is group {}, which is not complete: the raw tail was scored", entry,
                              frame_.groups)});
    return;
  }
  const std::int64_t first = frame_.first_value + frame_.groups * frame_.unit;
  const std::int64_t missing =
      frame_.tail - parts_.tail_present - std::min(frame_.tail - parts_.tail_present, parts_.dropped_tail_part);
  if (missing > 0) {
    report({.promise = Promise::kTail,
            .entries = missing,
            .token = first,
            .what = formatted("{} of the {} tokens of the raw tail, from {} on, are missing", missing, frame_.tail,
                              first)});
    return;
  }
  if (rule_ == RowRule::kSet || parts_.tail_present == 0) return;
  std::int64_t last_of_groups = -1;
  const std::int64_t tail_from = frame_.groups * frame_.unit;
  for (const PlacedUnit& placed : parts_.units) {
    if (placed.unit < tail_from) last_of_groups = std::max(last_of_groups, placed.entry);
  }
  std::int64_t early = 0;
  std::int64_t entry = -1;
  for (const PlacedUnit& placed : parts_.units) {
    if (placed.unit < tail_from || placed.entry > last_of_groups) continue;
    if (early++ == 0) entry = placed.entry;
  }
  if (early == 0) return;
  report({.promise = Promise::kTail,
          .entry = entry,
          .entries = early,
          .token = entries[static_cast<std::size_t>(entry)],
          .what = formatted("entry {} is {}, of the raw tail, and a group follows it", entry,
                            entries[static_cast<std::size_t>(entry)])});
}

}  // namespace seriatim
