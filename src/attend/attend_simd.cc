#include "attend/attend_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attend/attend_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/simd_target.hpp"
#if SERIATIM_HAS_SIMD
#include "attend/block-inl.hpp"
#endif

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if SERIATIM_HAS_SIMD
// Calls the function for the layer's storage dtype.
template <typename Call>
HWY_INLINE void for_stored(const AttendBlock& block, Call&& call) {
  switch (block.layer->geometry->kv_dtype()) {
    case DType::kF32:
      return call(StoredF32());
    case DType::kBf16:
      return call(StoredBf16());
    case DType::kF16:
      return call(StoredF16());
    case DType::kI32:
    case DType::kI64:
      break;  // no geometry admits them
  }
}

void attend_block(const AttendBlock& block) {
  for_stored(block, [&](auto stored) { Block<decltype(stored)>(block).attend(); });
}

void reduce_splits(const AttendBlock& block, std::int64_t first, std::int64_t count, float* partials) {
  for_stored(block, [&](auto stored) { Block<decltype(stored)>(block).reduce(first, count, partials); });
}

void fold_splits(const AttendBlock& block, std::int64_t first, std::int64_t count, const float* partials,
                 float* total) {
  for_stored(block, [&](auto stored) { Block<decltype(stored)>(block).fold(first, count, partials, total); });
}

void split_partials(const AttendBlock& block, std::int64_t first, std::int64_t count, float* spare, float* partials) {
  for_stored(block, [&](auto stored) { Block<decltype(stored)>(block).split_partials(first, count, spare, partials); });
}

// Partials of any stored dtype have their dims in order, as f32 has them.
void fold_partials(const AttendBlock& block, const float* partials, std::int64_t count, float* spare) {
  Block<StoredF32>(block).fold_partials(partials, count, spare);
}

SERIATIM_KERNEL_TABLE(AttendKernels, attend_table, attend_block, reduce_splits, fold_splits, split_partials,
                      fold_partials)
#else
SERIATIM_NO_KERNEL_TABLE(AttendKernels, attend_table)
#endif

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"
SERIATIM_KERNEL_FAMILY(AttendKernels, attend_table, attend_kernels, attend_reference)
#endif  // HWY_ONCE
