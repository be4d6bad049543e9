// The definition of gathering. Scalar, short, never tuned.
#pragma once

#include "seriatim/gather.hpp"

namespace seriatim {

void gather_tile_ref(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile);

}  // namespace seriatim
