// What a row is made of: its entries sorted out, before anything is judged.
//
// Everything is counted from the anchor, in units: tokens, or groups where the row holds group numbers. An entry that
// is no visible unit, or that repeats another, is `dropped`: the unit that should have stood there is missing for that
// reason alone, and is not held against the row a second time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "seriatim/check.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

// The integers of one row's rule.
struct RowFrame {
  std::int64_t first_value = 0;  // the entry that means unit 0
  std::int64_t unit = 1;         // units per group
  std::int64_t groups = 0;       // complete groups
  std::int64_t kept = 0;         // groups due: min(K, groups)
  std::int64_t tail = 0;         // raw tail, in units
  bool partial_group = false;    // a row of group numbers whose query has a raw tail
  std::int64_t visible = 0;      // tokens

  std::int64_t units() const { return groups * unit + tail; }
  std::int64_t due() const { return kept * unit + tail; }
};
RowFrame frame_of(const Geometry& geometry, RowUnit unit, VisibleRun run);

// What an entry is.
enum class EntryKind : std::uint8_t { kGood, kPadding, kHole, kNegative, kPast, kFuture, kScoredTail, kRepeated };

struct PlacedUnit {
  std::int64_t unit = 0;
  std::int64_t entry = 0;
};

// One group of which the row has something.
struct HeldGroup {
  std::int64_t group = 0;
  std::int64_t present = 0;  // distinct units
  std::int64_t entry = 0;    // the first of them in the row
  bool doubled = false;      // one of its units stands twice
  bool suspect = false;      // stands beside a dropped entry
  bool broken = false;       // not whole, and no dropped entry explains it
};

// Scratch of one worker; sort_out() fills it anew for every row.
class RowParts {
 public:
  void sort_out(const RowFrame& frame, RowRule rule, std::span<const std::int64_t> entries);

  const HeldGroup* find(std::int64_t group) const { return const_cast<RowParts*>(this)->held(group); }

  std::int64_t live = 0;          // entries up to the last that is not padding (rule `set`: that are not padding)
  std::vector<EntryKind> kinds;   // [live end]
  std::vector<PlacedUnit> units;  // good entries by unit
  std::vector<HeldGroup> groups;  // ascending
  std::int64_t dropped_groups_part = 0;  // dropped entries left over after explaining broken groups
  std::int64_t dropped_tail_part = 0;    // dropped entries where the tail should be
  std::int64_t repeated = 0;
  std::int64_t first_repeated = -1;  // entry
  std::int64_t whole = 0;            // groups that are whole or explained
  std::int64_t broken = 0;           // groups that are not
  std::int64_t broken_units = 0;     // what the row has of them
  std::int64_t tail_present = 0;
  bool tail_doubled = false;

 private:
  void classify(const RowFrame& frame, RowRule rule, std::span<const std::int64_t> entries);
  void find_repeated(const RowFrame& frame);
  void collect_groups(const RowFrame& frame);
  void mark_suspects(const RowFrame& frame, std::span<const std::int64_t> entries);
  void explain_broken(const RowFrame& frame, RowRule rule);
  void spend_on_groups(const RowFrame& frame, RowRule rule);
  HeldGroup* held(std::int64_t group);

  std::vector<PlacedUnit> all_;        // good entries and repeated ones
  std::vector<std::int64_t> doubled_;  // units that stand twice
  std::vector<HeldGroup*> partial_;
};

}  // namespace seriatim
