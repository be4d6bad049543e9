#include "score/score_ref.hpp"

#include <cmath>

#include "base/fma.hpp"
#include "base/half.hpp"

namespace seriatim {
namespace {

// NaN passes through, so that an overflow stays visible in the score.
float relu(float x) { return x < 0.0f ? 0.0f : x; }

float head_score(const Geometry& geometry, float dot, float inverse_sqrt_dim) {
  const ScaleAt place = geometry.scale_at();
  if (place == ScaleAt::kBeforeRelu) dot = dot * inverse_sqrt_dim;
  if (geometry.relu()) dot = relu(dot);
  if (place == ScaleAt::kAfterRelu) dot = dot * inverse_sqrt_dim;
  return dot;
}

}  // namespace

void score_ref(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, const PooledKeys& pooled,
               std::span<float> scores) {
  const std::int64_t stride = row_bytes(pooled.dtype, PooledKeys::kPanelGroups);
  const float sqrt_dim = std::sqrt(static_cast<float>(geometry.index_dim()));
  const float inverse_sqrt_dim = static_cast<float>(1.0 / std::sqrt(static_cast<double>(geometry.index_dim())));
  for (std::int64_t g = 0; g < pooled.groups; ++g) {
    const std::byte* key = pooled.group(g);
    float sum = 0.0f;
    for (std::int64_t h = 0; h < geometry.heads_per_selection(); ++h) {
      float dot = 0.0f;
      for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
        dot = fma32(load_element(query.at(h, i), query.dtype), load_element(key + i * stride, pooled.dtype), dot);
      }
      const float value = head_score(geometry, dot, inverse_sqrt_dim);
      sum = head_weights.empty() ? sum + value : fma32(load_element(head_weights.at(h), DType::kF32), value, sum);
    }
    scores[static_cast<std::size_t>(g)] = geometry.scale_at() == ScaleAt::kAfterSum ? sum / sqrt_dim : sum;
  }
}

}  // namespace seriatim
