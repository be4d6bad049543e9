// Room 7, gather: the row's positions -> contiguous tiles of keys and values. Only here do positions become slots.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/cache.hpp"

namespace seriatim {

// Entries of a row that are gathered and reduced together: a split (contract section 5). Cut by place in the row.
inline constexpr std::int64_t kSplitEntries = 128;

// One kv head's keys and values for the entries of one split, widened to f32.
struct Tile {
  float* keys = nullptr;    // [entries, head_dim]
  float* values = nullptr;  // [entries, value_dim]
};

// Takes   positions: at most kSplitEntries, each inside layer.run (the caller has checked)
// Gives   tile, in the order of `positions`. Nothing but those positions' keys and values is read.
void gather_tile(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile);

}  // namespace seriatim
