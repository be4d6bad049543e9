#include "check/row_parts.hpp"

#include <algorithm>

#include "seriatim/row.hpp"

namespace seriatim {
namespace {

EntryKind kind_of(const RowFrame& frame, std::int64_t entry) {
  if (entry < 0) return EntryKind::kNegative;
  if (entry < frame.first_value) return EntryKind::kPast;
  const std::int64_t unit = entry - frame.first_value;
  if (unit < frame.units()) return EntryKind::kGood;
  return frame.partial_group && unit == frame.groups ? EntryKind::kScoredTail : EntryKind::kFuture;
}

}  // namespace

RowFrame frame_of(const Geometry& geometry, RowUnit unit, VisibleRun run) {
  RowFrame frame;
  const bool tokens = unit == RowUnit::kToken;
  frame.first_value = tokens ? run.anchor : 0;
  frame.unit = tokens ? geometry.group_tokens() : 1;
  frame.groups = geometry.groups(run.tokens);
  frame.kept = std::min(frame.groups, geometry.budget_groups());
  frame.tail = tokens ? geometry.tail_tokens(run.tokens) : 0;
  frame.partial_group = !tokens && geometry.tail_tokens(run.tokens) > 0;
  frame.visible = run.tokens;
  return frame;
}

void RowParts::sort_out(const RowFrame& frame, RowRule rule, std::span<const std::int64_t> entries) {
  classify(frame, rule, entries);
  find_repeated(frame);
  collect_groups(frame);
  mark_suspects(frame, entries);
  explain_broken(frame, rule);
}

void RowParts::classify(const RowFrame& frame, RowRule rule, std::span<const std::int64_t> entries) {
  std::size_t end = entries.size();
  while (end > 0 && entries[end - 1] == kRowPadding) --end;
  kinds.assign(end, EntryKind::kGood);
  all_.clear();
  live = 0;
  for (std::size_t i = 0; i < end; ++i) {
    if (entries[i] == kRowPadding) {
      kinds[i] = rule == RowRule::kSet ? EntryKind::kPadding : EntryKind::kHole;
    } else {
      kinds[i] = kind_of(frame, entries[i]);
    }
    if (kinds[i] == EntryKind::kGood) all_.push_back({entries[i] - frame.first_value, static_cast<std::int64_t>(i)});
    if (kinds[i] != EntryKind::kPadding) ++live;
  }
}

// Of a unit that stands several times one occurrence counts: for the tail the last, for all others the first.
void RowParts::find_repeated(const RowFrame& frame) {
  const auto by_unit = [](const PlacedUnit& a, const PlacedUnit& b) {
    return a.unit != b.unit ? a.unit < b.unit : a.entry < b.entry;
  };
  if (!std::is_sorted(all_.begin(), all_.end(), by_unit)) std::sort(all_.begin(), all_.end(), by_unit);
  units.clear();
  doubled_.clear();
  repeated = 0;
  first_repeated = -1;
  const std::int64_t tail_from = frame.groups * frame.unit;
  for (std::size_t i = 0; i < all_.size();) {
    std::size_t next = i + 1;
    while (next < all_.size() && all_[next].unit == all_[i].unit) ++next;
    const std::size_t counts = all_[i].unit >= tail_from ? next - 1 : i;
    units.push_back(all_[counts]);
    if (next - i > 1) doubled_.push_back(all_[i].unit);
    for (std::size_t k = i; k < next; ++k) {
      if (k == counts) continue;
      kinds[static_cast<std::size_t>(all_[k].entry)] = EntryKind::kRepeated;
      ++repeated;
    }
    for (std::size_t k = i + 1; k < next; ++k) {
      if (first_repeated < 0 || all_[k].entry < first_repeated) first_repeated = all_[k].entry;
    }
    i = next;
  }
}

void RowParts::collect_groups(const RowFrame& frame) {
  groups.clear();
  tail_present = 0;
  for (const PlacedUnit& placed : units) {
    const std::int64_t group = placed.unit / frame.unit;
    if (group >= frame.groups) {
      ++tail_present;
      continue;
    }
    if (groups.empty() || groups.back().group != group) groups.push_back({.group = group, .entry = placed.entry});
    ++groups.back().present;
    groups.back().entry = std::min(groups.back().entry, placed.entry);
  }
  tail_doubled = false;
  for (const std::int64_t unit : doubled_) {
    HeldGroup* group = held(unit / frame.unit);
    (group != nullptr ? group->doubled : tail_doubled) = true;
  }
}

HeldGroup* RowParts::held(std::int64_t group) {
  const auto at = std::lower_bound(groups.begin(), groups.end(), group,
                                   [](const HeldGroup& h, std::int64_t g) { return h.group < g; });
  return at != groups.end() && at->group == group ? &*at : nullptr;
}

// A dropped entry most likely took the place of a unit of the group beside which it stands.
void RowParts::mark_suspects(const RowFrame& frame, std::span<const std::int64_t> entries) {
  const auto mark_block = [&](std::int64_t entry) {
    const std::int64_t first = std::max<std::int64_t>(entry - frame.unit + 1, 0);
    const std::int64_t end = std::min(entry + frame.unit, std::ssize(kinds));
    for (std::int64_t i = first; i < end; ++i) {
      if (kinds[static_cast<std::size_t>(i)] != EntryKind::kGood) continue;
      if (HeldGroup* group = held((entries[static_cast<std::size_t>(i)] - frame.first_value) / frame.unit))
        group->suspect = true;
    }
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] != EntryKind::kGood && kinds[i] != EntryKind::kPadding) mark_block(static_cast<std::int64_t>(i));
  }
  for (const PlacedUnit& placed : all_) {
    if (std::binary_search(doubled_.begin(), doubled_.end(), placed.unit)) mark_block(placed.entry);
  }
}

void RowParts::explain_broken(const RowFrame& frame, RowRule rule) {
  dropped_groups_part = dropped_tail_part = 0;
  const std::int64_t tail_zone = std::ssize(kinds) - frame.tail;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (kinds[i] == EntryKind::kGood || kinds[i] == EntryKind::kPadding) continue;
    const bool in_tail = rule != RowRule::kSet && static_cast<std::int64_t>(i) >= tail_zone;
    ++(in_tail ? dropped_tail_part : dropped_groups_part);
  }
  partial_.clear();
  for (HeldGroup& group : groups) {
    if (group.present < frame.unit) partial_.push_back(&group);
  }
  std::stable_sort(partial_.begin(), partial_.end(),
                   [](const HeldGroup* a, const HeldGroup* b) { return a->suspect > b->suspect; });
  const std::int64_t dropped = dropped_groups_part;
  spend_on_groups(frame, rule);
  if (rule != RowRule::kSet) return;
  // Without an order a dropped entry may have stood anywhere. Groups come first, but where they are broken all the
  // same, the tail does.
  const std::int64_t missing = frame.tail - tail_present;
  if (broken > 0 && missing > 0 && missing <= dropped) {
    dropped_groups_part = dropped - missing;
    spend_on_groups(frame, rule);
    dropped_tail_part = missing;
    return;
  }
  const std::int64_t lost = frame.kept - whole - (broken_units + frame.unit - 1) / frame.unit;
  const std::int64_t spare =
      dropped_groups_part - std::clamp<std::int64_t>(lost, 0, dropped_groups_part / frame.unit) * frame.unit;
  dropped_tail_part = std::clamp<std::int64_t>(spare, 0, missing);
  dropped_groups_part -= dropped_tail_part;
}

// Groups of which the row has nothing are explained before parts of others are.
void RowParts::spend_on_groups(const RowFrame& frame, RowRule rule) {
  const std::int64_t lost = std::max<std::int64_t>(frame.kept - std::ssize(groups), 0);
  const std::int64_t reserved = std::min(lost, (dropped_groups_part + dropped_tail_part) / frame.unit) * frame.unit;
  const std::int64_t from_tail = std::max<std::int64_t>(reserved - dropped_groups_part, 0);
  dropped_groups_part -= reserved - from_tail;
  dropped_tail_part -= from_tail;
  broken = broken_units = 0;
  for (HeldGroup* group : partial_) {
    const std::int64_t missing = frame.unit - group->present;
    // A short row's end lies where the tail would: a dropped entry there may have stood for the group beside it.
    const std::int64_t borrowed = group->suspect ? std::max<std::int64_t>(missing - dropped_groups_part, 0) : 0;
    // In an order, a dropped entry explains what is missing beside it and nothing else.
    const bool explainable = group->suspect || rule == RowRule::kSet;
    group->broken = !explainable || missing > dropped_groups_part + borrowed || borrowed > dropped_tail_part;
    if (group->broken) {
      ++broken;
      broken_units += group->present;
      continue;
    }
    dropped_groups_part -= missing - borrowed;
    dropped_tail_part -= borrowed;
  }
  whole = std::ssize(groups) - broken;
  dropped_groups_part += reserved;
}

}  // namespace seriatim
