// The implementations of gathering, one per instruction set.
#pragma once

#include <string_view>

#include "seriatim/gather.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim {

struct GatherKernels {
  std::string_view name;  // of what really runs: Highway's name of the instruction set, or "reference"
  void (*gather_tile)(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile);
};

const GatherKernels& gather_kernels(Kernels kernels);

}  // namespace seriatim
