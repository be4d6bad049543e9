// The pooling kernels: mean, norm and rotation of up to a panel of groups. One family per instruction set, and one that
// is the definition; all give its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/tensor.hpp"

// One line per dtype that index keys may have: X(name, DType, Stored). Dispatches and tests the family.
#define SERIATIM_POOL_KERNELS(X) \
  X(f32, DType::kF32, StoredF32) X(bf16, DType::kBf16, StoredBf16) X(f16, DType::kF16, StoredF16)

namespace seriatim {

inline constexpr std::int64_t kPoolGroups = PooledKeys::kPanelGroups;

// Arguments that have been checked; pooling is `mean`.
struct PoolTask {
  const Geometry* geometry = nullptr;
  const float* norm_weight = nullptr;  // [index_dim]: w of (1 + w)
  const std::byte* raw = nullptr;      // [groups * tokens] rows of dense elements of index_dtype
  std::int64_t stride_bytes = 0;       // from a row to the next
  std::int64_t tokens = 1;             // of a group: r, or 1 for vectors that are their own mean
  std::int64_t groups = 0;             // 1 .. kPoolGroups
  const Coordinates* at = nullptr;     // [groups]: where each is rotated
  float* scratch = nullptr;            // [pool_scratch_floats]
  std::byte* pooled = nullptr;         // dim 0 of group 0, in index_dtype
  std::int64_t group_stride_bytes = 0;
  std::int64_t dim_stride_bytes = 0;
  // Of the raw rows where it is another one: any, if index_dtype is f32, in which everything is computed then.
  std::optional<DType> raw_dtype = {};
  // [groups][2][turn_floats]: the sines and cosines of the rotations in f32, where they are known already.
  const float* turns = nullptr;

  DType dtype_of_raw() const { return raw_dtype.value_or(geometry->index_dtype()); }
};

struct PoolKernels {
  const char* name;  // of the instruction set that was compiled, "reference" for the definition

  // Gives   the largest magnitude that was written; infinity if something was not finite.
  float (*pool)(const PoolTask& task);

  // sincos32 of angles that are all 0 .. 2^31: what the rotation is made of, so that a test can ask it for any angle.
  // Takes   sines, cosines [count rounded up to 8]; angles too. Gives how many were left to sincos32 itself.
  std::int64_t (*sincos)(const float* angles, std::int64_t count, float* sines, float* cosines);
};

std::int64_t pool_scratch_floats(const Geometry& geometry);

// Floats of one row of sines, or cosines: a pair each, padded to whole vectors.
inline std::int64_t turn_floats(const Geometry& geometry) { return (geometry.index_rotary_dim() / 2 + 15) / 16 * 16; }

const PoolKernels& pool_kernels(Kernels kernels);
const PoolKernels& pool_reference();

// The definition for a group of r raw keys or, as index queries are, for one vector that is its own mean.
void pool_vector_ref(const Geometry& geometry, std::span<const float> norm_weight, const ConstTensor& raw,
                     const Coordinates& at, float* pooled);

// pool_keys and prepare_index_queries by the given kernels.
Status pool_keys_with(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight, const ConstTensor& raw,
                      std::int64_t first_position, const Coordinates* coordinates, const Tensor& pooled);
Status prepare_index_queries_with(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight,
                                  const ConstTensor& raw, const std::int64_t* positions, const Coordinates* coordinates,
                                  const Tensor& prepared);

}  // namespace seriatim
