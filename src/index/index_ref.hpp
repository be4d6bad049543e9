// The definition of pooling, norm and rotation. Scalar, short, never tuned.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"

namespace seriatim {

// Norm and rotation, in place, of one vector of geometry.index_dim() values already rounded to the index dtype.
void norm_and_rotate_ref(const Geometry& geometry, std::span<const float> norm_weight, const Coordinates& at, float* x);

// One group: `raw` [r, index_dim] -> `pooled` [index_dim], as f32 values of the index dtype.
void pool_group_ref(const Geometry& geometry, std::span<const float> norm_weight, ConstTensor raw,
                    const Coordinates& at, float* pooled);

}  // namespace seriatim
