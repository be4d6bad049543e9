#include "gather/gather_ref.hpp"

#include <algorithm>

#include "base/half.hpp"

namespace seriatim {
namespace {

void widen(const std::byte* from, DType dtype, std::int64_t elements, float* to) {
  for (std::int64_t i = 0; i < elements; ++i) to[i] = load_element(from + i * dtype_bytes(dtype), dtype);
}

}  // namespace

void gather_tile_ref(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile) {
  const Geometry& geometry = *layer.geometry;
  const std::int64_t head_dim = geometry.head_dim();
  const std::int64_t value_dim = geometry.value_dim();
  for (std::size_t j = 0; j < positions.size(); ++j) {
    float* key = tile.keys + static_cast<std::int64_t>(j) * head_dim;
    float* value = tile.values + static_cast<std::int64_t>(j) * value_dim;
    widen(layer.key(positions[j], kv_head), geometry.kv_dtype(), head_dim, key);
    if (geometry.values_alias_keys()) {
      std::copy_n(key, value_dim, value);
    } else {
      widen(layer.value(positions[j], kv_head), geometry.kv_dtype(), value_dim, value);
    }
  }
}

}  // namespace seriatim
