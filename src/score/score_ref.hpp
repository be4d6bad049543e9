// The definition of the group score. Scalar, short, never tuned.
#pragma once

#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"

namespace seriatim {

// One score per visible group. `head_weights` is empty or [index_heads].
void score_ref(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, const PooledKeys& pooled,
               std::span<float> scores);

}  // namespace seriatim
