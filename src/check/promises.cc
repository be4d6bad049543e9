// Names of the promises, and what each demands.
#include <array>

#include "seriatim/check.hpp"

namespace seriatim {
namespace {

struct Words {
  std::string_view name;
  std::string_view text;
};

constexpr std::array<Words, kPromises> kWords{{
    {"range",
     "Every entry is a position that the query sees: the anchor, the query's own token, or one between. Padding is -1 "
     "and stands "
     "behind the last position. A future token leaks what the model is to predict, a position before the anchor "
     "belongs to padding "
     "or to nobody, and other negative numbers index memory that is not the cache's."},
    {"duplicate",
     "No position stands twice. Softmax would weigh a repeated token twice, and the place it takes is missing for "
     "another one."},
    {"width",
     "Above the budget a row holds the budget's whole groups and the raw tail: B + n mod r entries, neither fewer nor "
     "more. A short row "
     "drops context that the budget pays for, a long one does work that nothing bounds."},
    {"expansion",
     "Scores choose groups of r tokens, and a chosen group is read whole, its tokens side by side. Selecting token by "
     "token over copied "
     "scores keeps parts of a group at the cut, which no score has asked for."},
    {"tail",
     "The n mod r newest tokens belong to no complete group. They are always in the row, never scored, and stand last; "
     "a "
     "query that misses them does not even see itself."},
    {"membership",
     "The row holds the min(K, G) best groups by score. A group with a higher score that was left out for one with a "
     "lower is the "
     "indexer's choice undone; the evidence names both groups, their scores and the relative distance. With a margin, "
     "exchanges "
     "among groups that near to the cut are `near` and no fault."},
    {"tie",
     "Among equal scores the earlier group wins (-0 equals +0). The relu makes exact zeros common, so the rule is "
     "needed every day; "
     "without it the row depends on threads, vector widths and the batch."},
    {"order",
     "Positions ascend: top-k chooses the set, time chooses the order. Attention sums in row order, so another order "
     "gives other bits. "
     "`--rule set`, `rank` and `arrival` relax this promise alone."},
    {"dense",
     "Up to B + r - 1 visible tokens the row is all of them, whatever the scores are: byte for byte the dense causal "
     "row. Nothing may "
     "be dropped while it fits."},
    {"repeat",
     "Equal input gives an equal row: two queries with as many visible tokens and the same scores, bit by bit, have "
     "the same row. It is "
     "judged on the pair; if the difference breaks another promise in one of the rows, that is named there as well."},
    {"arithmetic",
     "The output is that of attention over the row that the engine itself chose, so that a fault of selection is not "
     "counted again. It "
     "is compared with the canonical output relative to the largest |value|: 1e-5 for f32 keys and values, 1e-2 for "
     "bf16 and f16."},
}};

}  // namespace

std::string_view promise_name(Promise promise) { return kWords[static_cast<std::size_t>(promise)].name; }
std::string_view promise_text(Promise promise) { return kWords[static_cast<std::size_t>(promise)].text; }

std::optional<Promise> promise_named(std::string_view name) {
  for (std::size_t i = 0; i < kPromises; ++i) {
    if (kWords[i].name == name) return static_cast<Promise>(i);
  }
  return std::nullopt;
}

}  // namespace seriatim
