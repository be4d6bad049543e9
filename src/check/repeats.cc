#include "check/repeats.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/format.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

std::span<const std::int64_t> live_part(std::span<const std::int64_t> entries) {
  std::size_t end = entries.size();
  while (end > 0 && entries[end - 1] == kRowPadding) --end;
  return entries.first(end);
}

// One row read again.
struct Reread {
  std::vector<std::int64_t> entries;
  std::vector<float> scores;

  Status read(const Selection& selection, std::int64_t row) {
    const Selection::About& about = selection.about();
    entries.resize(static_cast<std::size_t>(about.width));
    scores.resize(static_cast<std::size_t>(about.visible[static_cast<std::size_t>(row)] / about.group_tokens));
    if (Status s = selection.read_row(row, entries); !s.ok()) return s;
    return selection.read_scores(row, scores);
  }
  bool same_input(const Reread& other) const {
    return scores.size() == other.scores.size() &&
           (scores.empty() || std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(float)) == 0);
  }
};

Status compare(const Selection& selection, std::int64_t first, std::int64_t row, std::vector<Finding>& findings) {
  Reread a;
  Reread b;
  if (Status s = a.read(selection, first); !s.ok()) return s;
  if (Status s = b.read(selection, row); !s.ok()) return s;
  if (!a.same_input(b)) return {};  // digests collided
  const auto left = live_part(a.entries);
  const auto right = live_part(b.entries);
  const auto differ = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
  if (differ.first == left.end() && differ.second == right.end()) return {};
  const std::int64_t entry = differ.second - right.begin();
  findings.push_back({.promise = Promise::kRepeat,
                      .row = row,
                      .entry = entry,
                      .token = differ.second == right.end() ? -1 : *differ.second,
                      .other = first,
                      .what = formatted("row {} has the same input and differs from entry {} on", first, entry)});
  return {};
}

}  // namespace

RowDigest digest_row(std::int64_t visible, std::span<const float> scores, std::span<const std::int64_t> entries) {
  const auto live = live_part(entries);
  return {XXH3_64bits_withSeed(scores.data(), scores.size_bytes(), static_cast<XXH64_hash_t>(visible)),
          XXH3_64bits(live.data(), live.size_bytes())};
}

Status find_repeats(const Selection& selection, std::span<const RowDigest> digests, std::vector<Finding>& findings,
                    std::int64_t& judged) {
  const auto& visible = selection.about().visible;
  std::vector<std::int64_t> order(digests.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto key = [&](std::int64_t row) {
    return std::tuple(digests[static_cast<std::size_t>(row)].input, visible[static_cast<std::size_t>(row)]);
  };
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return std::tuple_cat(key(a), std::tuple(a)) < std::tuple_cat(key(b), std::tuple(b));
  });
  judged = 0;
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    for (; end < order.size() && key(order[end]) == key(order[begin]); ++end) {
      if (digests[static_cast<std::size_t>(order[end])].entries ==
          digests[static_cast<std::size_t>(order[begin])].entries)
        continue;
      if (Status s = compare(selection, order[begin], order[end], findings); !s.ok()) return s;
    }
    if (end - begin > 1) judged += static_cast<std::int64_t>(end - begin);
    begin = end;
  }
  std::sort(findings.begin(), findings.end(), [](const Finding& a, const Finding& b) { return a.row < b.row; });
  return {};
}

}  // namespace seriatim
