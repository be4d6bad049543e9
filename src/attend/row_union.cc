#include "attend/row_union.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace seriatim {

RowUnion::RowUnion(std::span<const std::span<const std::int32_t>> rows) : rows_(rows.size()) {
  for (std::size_t q = 0; q < rows_; ++q) cursors_[q] = {rows[q].data(), rows[q].data() + rows[q].size()};
}

void RowUnion::next(Chunk& chunk) {
  if (rows_ == 1) return next_of_one(chunk);
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, kMostBlockQueries> heads;  // the next position of each row
  const auto head = [](const Cursor& c) { return c.next == c.end ? kNone : std::int64_t{*c.next}; };
  for (std::size_t q = 0; q < rows_; ++q) {
    chunk.counts[q] = 0;
    heads[q] = head(cursors_[q]);
  }
  chunk.entries = 0;
  while (chunk.entries < chunk.positions.size()) {
    const std::int64_t least = *std::min_element(heads.begin(), heads.begin() + static_cast<std::ptrdiff_t>(rows_));
    if (least == kNone) return;
    for (std::size_t q = 0; q < rows_; ++q) {
      // The place is written in any case and counted only where it belongs to the row: no branch to mispredict.
      const bool belongs = heads[q] == least;
      chunk.places[q][chunk.counts[q]] = static_cast<std::uint8_t>(chunk.entries);
      chunk.counts[q] += belongs ? 1 : 0;
      cursors_[q].next += belongs ? 1 : 0;
      heads[q] = head(cursors_[q]);
    }
    chunk.positions[chunk.entries++] = static_cast<std::int32_t>(least);
  }
}

void RowUnion::next_of_one(Chunk& chunk) {
  Cursor& cursor = cursors_[0];
  chunk.entries = std::min(chunk.positions.size(), static_cast<std::size_t>(cursor.end - cursor.next));
  std::copy_n(cursor.next, chunk.entries, chunk.positions.begin());
  cursor.next += chunk.entries;
  chunk.counts[0] = chunk.entries;
  std::iota(chunk.places[0].begin(), chunk.places[0].begin() + static_cast<std::ptrdiff_t>(chunk.entries),
            std::uint8_t{0});
}

bool worth_sharing(std::span<const std::span<const std::int32_t>> rows) {
  constexpr std::size_t kSamples = 32;
  const auto& first = rows.front();
  std::size_t looked_for = 0;
  std::size_t found = 0;
  for (const auto& row : rows.subspan(1)) {
    if (row.size() > 2 * first.size() || first.size() > 2 * row.size()) return false;
    for (std::size_t s = 0; s < kSamples && !first.empty(); ++s) {
      ++looked_for;
      if (std::binary_search(row.begin(), row.end(), first[s * first.size() / kSamples])) ++found;
    }
  }
  return 10 * found >= 8 * looked_for;
}

}  // namespace seriatim
