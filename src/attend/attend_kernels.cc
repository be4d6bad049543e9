#include "attend/attend_kernels.hpp"

#include "attend/attend_ref.hpp"
#include "attend/attend_simd.hpp"

namespace seriatim {
namespace {

// One query after the other: the definition.
void attend_block_ref(const AttendBlock& block) {
  for (BlockQuery& one : block.queries) {
    one.overflow = attend_kv_head_ref(
        {block.layer, block.kv_head, one.query, one.row, block.sinks, block.scratch, one.output, one.lse});
  }
}

}  // namespace

const AttendKernels& attend_kernels(Kernels kernels) {
  static const AttendKernels reference{"reference", attend_block_ref};
  const AttendKernels* simd = attend_simd(kernels);
  return simd == nullptr ? reference : *simd;
}

std::int64_t attend_ref_floats(const Geometry& geometry) {
  return kSplitEntries * (geometry.head_dim() + geometry.value_dim() + 1) + 2 * geometry.value_dim();
}

}  // namespace seriatim
