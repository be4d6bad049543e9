#include "index/index_ref.hpp"

#include <cmath>

#include "base/fma.hpp"
#include "base/half.hpp"
#include "base/sincos.hpp"

namespace seriatim {
namespace {

void norm_ref(const Geometry& geometry, std::span<const float> norm_weight, float* x) {
  const std::int64_t dim = geometry.index_dim();
  float sum = 0.0f;
  for (std::int64_t i = 0; i < dim; ++i) sum = fma32(x[i], x[i], sum);
  const float mean_square = sum / static_cast<float>(dim);
  const float inverse = 1.0f / std::sqrt(mean_square + geometry.norm_eps());
  for (std::int64_t i = 0; i < dim; ++i) {
    const float weight = 1.0f + norm_weight[static_cast<std::size_t>(i)];
    x[i] = round_to(geometry.index_dtype(), (x[i] * inverse) * weight);
  }
}

void rotate_ref(const Geometry& geometry, const Coordinates& at, float* x) {
  const DType dtype = geometry.index_dtype();
  const std::int64_t pairs = geometry.index_rotary_dim() / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const auto pair = static_cast<std::size_t>(i);
    const std::size_t axis = geometry.rope_axes().empty() ? 0 : geometry.rope_axes()[pair];
    const float angle = static_cast<float>(at[axis]) * geometry.inv_freq()[pair];
    const SinCos exact = sincos32(angle);
    const float sin = round_to(dtype, exact.sin);
    const float cos = round_to(dtype, exact.cos);
    const float first = x[i];
    const float second = x[i + pairs];
    x[i] = round_to(dtype, round_to(dtype, first * cos) - round_to(dtype, second * sin));
    x[i + pairs] = round_to(dtype, round_to(dtype, second * cos) + round_to(dtype, first * sin));
  }
}

}  // namespace

void norm_and_rotate_ref(const Geometry& geometry, std::span<const float> norm_weight, const Coordinates& at,
                         float* x) {
  norm_ref(geometry, norm_weight, x);
  rotate_ref(geometry, at, x);
}

void pool_group_ref(const Geometry& geometry, std::span<const float> norm_weight, ConstTensor raw,
                    const Coordinates& at, float* pooled) {
  const std::int64_t tokens = geometry.key_tokens();
  for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
    float sum = load_element(raw.at(0, i), raw.dtype);
    if (geometry.finished_keys()) {
      pooled[i] = sum;
      continue;
    }
    for (std::int64_t t = 1; t < tokens; ++t) sum = sum + load_element(raw.at(t, i), raw.dtype);
    pooled[i] = round_to(geometry.index_dtype(), sum / static_cast<float>(tokens));
  }
  if (geometry.pooling() == Pooling::kMean) norm_and_rotate_ref(geometry, norm_weight, at, pooled);
}

}  // namespace seriatim
