// log32: natural logarithm in f32 by fma, add, multiply and integer steps only.
//
// Source: contract section 5; x = 2^k * (1 + f), a minimax polynomial in f (tools/make_math_tables.py).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/fma.hpp"

namespace seriatim {

inline constexpr float kLogLn2Hi = 0x1.62e430p-1f;
inline constexpr float kLogLn2Lo = -0x1.05c610p-29f;
// log(1 + f) = f - f^2 / 2 + f^3 * (c0 + c1 f + ...) for 1 + f in [sqrt(1/2), sqrt(2)].
inline constexpr float kLogPolynomial[] = {0x1.555554p-2f, -0x1.000228p-2f, 0x1.99a012p-3f, -0x1.5471f6p-3f,
                                           0x1.22d90ap-3f, -0x1.0d875ap-3f, 0x1.056498p-3f, -0x1.38c1aap-4f};
inline constexpr std::uint32_t kLogSqrtHalfBits = 0x3f3504f3u;
inline constexpr float kLogNaN = std::bit_cast<float>(0x7fc00000u);

// Takes   any f32.
// Gives   the logarithm within 0.873 ulp (measured over every f32), subnormal x included, and never decreasing;
//         exactly +0 at 1; -inf at +-0; +inf at +inf; for x < 0 and for a NaN the one quiet NaN 0x7fc00000.
inline float log32(float x) {
  const bool small = x < std::numeric_limits<float>::min();
  const float normal = small ? x * 0x1p+23f : x;
  const auto bits = std::bit_cast<std::uint32_t>(normal);
  const std::int32_t exponent = static_cast<std::int32_t>(bits - kLogSqrtHalfBits) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23));
  const auto k = static_cast<float>(exponent - (small ? 23 : 0));
  const float f = m - 1.0f;
  float p = kLogPolynomial[7];
  p = fma32(p, f, kLogPolynomial[6]);
  p = fma32(p, f, kLogPolynomial[5]);
  p = fma32(p, f, kLogPolynomial[4]);
  p = fma32(p, f, kLogPolynomial[3]);
  p = fma32(p, f, kLogPolynomial[2]);
  p = fma32(p, f, kLogPolynomial[1]);
  p = fma32(p, f, kLogPolynomial[0]);
  p = fma32(p, f, -0.5f);
  // k ln 2 + f + f^2 p, the smallest part first.
  const float tail = fma32(f * f, p, k * kLogLn2Lo);
  float result = fma32(k, kLogLn2Hi, f + tail);
  result = x == 0.0f ? -std::numeric_limits<float>::infinity() : result;
  result = x > std::numeric_limits<float>::max() ? x : result;
  return x >= 0.0f ? result : kLogNaN;
}

}  // namespace seriatim
