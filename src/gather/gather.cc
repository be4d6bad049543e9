#include "seriatim/gather.hpp"

#include "gather/gather_ref.hpp"

namespace seriatim {

void gather_tile(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile) {
  gather_tile_ref(layer, kv_head, positions, tile);
}

}  // namespace seriatim
