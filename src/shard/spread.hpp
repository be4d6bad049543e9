// Which rank holds and which rank reduces what of a row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace seriatim {

// Entries that one rank holds of a split that another one reduces.
struct SplitPiece {
  int from = 0;
  int to = 0;
  std::int64_t split = 0;
  std::int64_t first = 0;  // entry of the row
  std::int64_t count = 0;
};

struct RowSpread {
  std::vector<std::int64_t> entries;  // [ranks + 1]: rank k holds entries entries[k] .. entries[k + 1] - 1
  std::vector<std::int64_t> splits;   // [ranks + 1]: rank k reduces splits splits[k] .. splits[k + 1] - 1
  std::vector<SplitPiece> pieces;     // by split, then by rank

  std::int64_t splits_of(int rank) const {
    return splits[static_cast<std::size_t>(rank) + 1] - splits[static_cast<std::size_t>(rank)];
  }
};

// A split is reduced by the rank that holds the most of its entries, the lowest of several.
// Takes   an ascending row inside the borders' range
RowSpread spread_row(std::span<const std::int32_t> row, std::span<const std::int64_t> borders);

}  // namespace seriatim
