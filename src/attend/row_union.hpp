// The rows of neighbouring queries merged into one ascending list, chunk by chunk, so that what they share is read
// once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "seriatim/attend.hpp"

namespace seriatim {

inline constexpr std::size_t kMostBlockQueries = 16;

// The next entries of the merged list, and which of them belong to each query.
struct Chunk {
  std::size_t entries = 0;
  std::array<std::int32_t, kSplitEntries> positions;
  std::array<std::size_t, kMostBlockQueries> counts;  // entries of each query
  std::array<std::array<std::uint8_t, kSplitEntries>, kMostBlockQueries>
      places;  // their indices into positions, ascending
};

class RowUnion {
 public:
  // At most kMostBlockQueries strictly ascending rows, which outlive this.
  explicit RowUnion(std::span<const std::span<const std::int32_t>> rows);

  // Up to kSplitEntries more entries; none at the end.
  void next(Chunk& chunk);

 private:
  struct Cursor {
    const std::int32_t* next = nullptr;
    const std::int32_t* end = nullptr;
  };

  void next_of_one(Chunk& chunk);

  std::array<Cursor, kMostBlockQueries> cursors_;
  std::size_t rows_;
};

// Whether the rows have so much in common that merging them saves work. A guess from a sample; it never moves a bit.
bool worth_sharing(std::span<const std::span<const std::int32_t>> rows);

}  // namespace seriatim
