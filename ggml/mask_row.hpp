// The row that a mask of f16 leaves: cells whose entry is not -inf, ascending by themselves.
#pragma once

#include <cstdint>
#include <span>

namespace seriatim::plugin {

struct MaskRow {
  std::int64_t count = 0;  // of what is visible; past `room` nothing was written
  bool biased = false;     // some visible entry is not zero
};

// Takes   mask [cells] f16
// Gives   cells[0 .. min(count, room))
MaskRow read_mask_row(const std::uint16_t* mask, std::int64_t cells, std::span<std::int32_t> row);

// The entries of those cells.
void read_mask_values(const std::uint16_t* mask, std::span<const std::int32_t> row, float* values);

}  // namespace seriatim::plugin
