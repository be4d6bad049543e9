// How far an approximate score can be from the canonical one: docs/decisions/0015-screening.md proves every constant.
#pragma once

#include <cstdint>

#include "seriatim/geometry.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// The proof's premises: longer chains are not screened.
inline constexpr std::int64_t kScreenMostDims = 4096;
inline constexpr std::int64_t kScreenMostHeads = 4096;

// |s - s~| <= by_error * |x - x~| + by_norm * |x~| + always, where x is a group's key and x~ what was multiplied in its
// place. Each coefficient is rounded up so far that of() in f32 is no less than that.
struct ScreenBound {
  float by_error;
  float by_norm;
  float always;
  double largest;  // no partial sum of any score passes this times the largest |x~| + |x - x~|; or not finite

  float of(float norm, float error) const { return by_norm * norm + (by_error * error + always); }
  // Whether no partial sum leaves f32 where no group has more than these.
  bool holds(float most_norm, float most_error) const;
};

// Takes   query [index_heads, index_dim], any float dtype; head_weights [index_heads] or null
//         exact_keys: x~ is x (bf16 keys), so that by_error does not matter
//         room: for 2 * index_heads * index_dim floats
ScreenBound screen_bound(const Geometry& geometry, const ConstTensor& query, const float* head_weights, bool exact_keys,
                         float* room);

}  // namespace seriatim
