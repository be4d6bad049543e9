#include <cstring>

#include "gather/gather_kernels.hpp"
#include "gather/gather_ref.hpp"
#include "seriatim/gather.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "gather/gather_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/simd_target.hpp"
#if SERIATIM_HAS_SIMD
#include "base/widen-inl.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if SERIATIM_HAS_SIMD
template <typename Stored>
void gather_stored(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile) {
  const auto head_dim = static_cast<std::size_t>(layer.geometry->head_dim());
  const auto value_dim = static_cast<std::size_t>(layer.geometry->value_dim());
  SlotWalk walk(layer, kv_head);
  for (std::size_t j = 0; j < positions.size(); ++j) {
    const SlotWalk::Slot slot = walk.at(positions[j]);
    widen<Stored>(slot.key, head_dim, tile.keys + j * head_dim);
    if (layer.geometry->values_alias_keys()) {
      std::memcpy(tile.values + j * value_dim, tile.keys + j * head_dim, value_dim * sizeof(float));
    } else {
      widen<Stored>(slot.value, value_dim, tile.values + j * value_dim);
    }
  }
}

void gather(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile) {
  switch (layer.geometry->kv_dtype()) {
    case DType::kF32:
      return gather_stored<StoredF32>(layer, kv_head, positions, tile);
    case DType::kBf16:
      return gather_stored<StoredBf16>(layer, kv_head, positions, tile);
    case DType::kF16:
      return gather_stored<StoredF16>(layer, kv_head, positions, tile);
    case DType::kI32:
    case DType::kI64:
      break;  // no geometry admits them
  }
}

const GatherKernels* gather_table() {
  static const GatherKernels kernels{hwy::TargetName(HWY_TARGET), gather};
  return &kernels;
}
#else
const GatherKernels* gather_table() { return nullptr; }
#endif

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"

namespace seriatim {

HWY_EXPORT(gather_table);

const GatherKernels& gather_kernels(Kernels kernels) {
  static const GatherKernels reference{"reference", gather_tile_ref};
  const GatherKernels* simd = kernels.is_reference() ? nullptr : SERIATIM_DISPATCH(gather_table, kernels.target())();
  return simd == nullptr ? reference : *simd;
}

}  // namespace seriatim
#endif  // HWY_ONCE
