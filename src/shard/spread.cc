#include "shard/spread.hpp"

#include <algorithm>

#include "seriatim/attend.hpp"

namespace seriatim {

RowSpread spread_row(std::span<const std::int32_t> row, std::span<const std::int64_t> borders) {
  const std::size_t ranks = borders.size() - 1;
  RowSpread spread;
  spread.entries.assign(ranks + 1, 0);
  spread.splits.assign(ranks + 1, 0);
  for (std::size_t k = 1; k <= ranks; ++k) {
    spread.entries[k] = std::lower_bound(row.begin(), row.end(), borders[k]) - row.begin();
  }
  const auto count = static_cast<std::int64_t>(row.size());
  std::size_t first_rank = 0;  // that holds entries of the split
  for (std::int64_t begin = 0; begin < count; begin += kSplitEntries) {
    const std::int64_t end = std::min(begin + kSplitEntries, count);
    while (spread.entries[first_rank + 1] <= begin) ++first_rank;
    const auto held = [&](std::size_t k) {
      return std::min(end, spread.entries[k + 1]) - std::max(begin, spread.entries[k]);
    };
    std::size_t owner = first_rank;
    std::size_t last = first_rank;
    for (std::size_t k = first_rank; k < ranks && spread.entries[k] < end; ++k) {
      last = k;
      if (held(k) > held(owner)) owner = k;
    }
    ++spread.splits[owner + 1];
    for (std::size_t k = first_rank; k <= last; ++k) {
      if (k == owner || held(k) <= 0) continue;
      spread.pieces.push_back({static_cast<int>(k), static_cast<int>(owner), begin / kSplitEntries,
                               std::max(begin, spread.entries[k]), held(k)});
    }
  }
  for (std::size_t k = 0; k < ranks; ++k) spread.splits[k + 1] += spread.splits[k];
  return spread;
}

}  // namespace seriatim
