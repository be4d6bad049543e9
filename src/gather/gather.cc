#include "seriatim/gather.hpp"

#include "base/float_environment.hpp"
#include "gather/gather_kernels.hpp"

namespace seriatim {

void gather_tile(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile,
                 Kernels kernels) {
  DefaultFloatEnvironment environment;
  gather_kernels(kernels).gather_tile(layer, kv_head, positions, tile);
}

}  // namespace seriatim
