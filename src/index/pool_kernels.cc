#include "index/pool_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half.hpp"
#include "base/sincos.hpp"
#include "index/index_ref.hpp"

namespace seriatim {
namespace {

float pool(const PoolTask& task) {
  const Geometry& geometry = *task.geometry;
  const DType dtype = geometry.index_dtype();
  const std::span<const float> weight(task.norm_weight, static_cast<std::size_t>(geometry.index_dim()));
  float largest = 0.0f;
  for (std::int64_t g = 0; g < task.groups; ++g) {
    ConstTensor group = dense_view(task.raw + g * task.tokens * task.stride_bytes, task.dtype_of_raw(),
                                   {task.tokens, geometry.index_dim()});
    group.stride_bytes[0] = task.stride_bytes;
    pool_vector_ref(geometry, weight, group, task.at[g], task.scratch);
    for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
      const float value = task.scratch[i];
      store_element(task.pooled + g * task.group_stride_bytes + i * task.dim_stride_bytes, dtype, value);
      largest = std::isfinite(value) ? std::max(largest, std::fabs(value)) : std::numeric_limits<float>::infinity();
    }
  }
  return largest;
}

std::int64_t sincos(const float* angles, std::int64_t count, float* sines, float* cosines) {
  for (std::int64_t i = 0; i < count; ++i) {
    const SinCos exact = sincos32(angles[i]);
    sines[i] = exact.sin;
    cosines[i] = exact.cos;
  }
  return count;
}

}  // namespace

const PoolKernels& pool_reference() {
  static constexpr PoolKernels kTable{"reference", pool, sincos};
  return kTable;
}

void pool_vector_ref(const Geometry& geometry, std::span<const float> norm_weight, const ConstTensor& raw,
                     const Coordinates& at, float* pooled) {
  if (raw.shape[0] == geometry.key_tokens()) return pool_group_ref(geometry, norm_weight, raw, at, pooled);
  for (std::int64_t i = 0; i < geometry.index_dim(); ++i) pooled[i] = load_element(raw.at(0, i), raw.dtype);
  norm_and_rotate_ref(geometry, norm_weight, at, pooled);
}

}  // namespace seriatim
