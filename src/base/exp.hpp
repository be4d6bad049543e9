// exp32: e^x in f32 by fma, add and integer steps only, so that any vector lane can repeat it bit for bit.
//
// A vector version runs the lines of exp32 in the same order on lanes, from `shifted` down to the selects.
// Source: contract section 5; Cody and Waite's range reduction, a minimax polynomial (tools/make_math_tables.py).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/fma.hpp"

namespace seriatim {

inline constexpr float kExpLog2E = 0x1.715476p+0f;
// 1.5 * 2^23: adding it leaves an integer, rounded to nearest even, in the low bits of the sum.
inline constexpr float kExpShift = 0x1.8p+23f;
// -ln 2 in two parts. The product with an integer below 2^8 is added exactly by fma: see the multiple of 2^-21 in the
// first part.
inline constexpr float kExpNegLn2Hi = -0x1.62e430p-1f;
inline constexpr float kExpNegLn2Lo = 0x1.05c610p-29f;
// e^r = 1 + r + r^2 * (c0 + c1 r + ...) for |r| <= ln(2) / 2.
inline constexpr float kExpPolynomial[] = {0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.1239e2p-7f,
                                           0x1.6a2434p-10f};
// The least f32 whose e^x is a normal f32, and the greatest whose e^x is finite.
inline constexpr float kExpLowest = -0x1.5d589ep+6f;
inline constexpr float kExpHighest = 0x1.62e42ep+6f;
inline constexpr float kExpNaN = std::bit_cast<float>(0x7fc00000u);

// Takes   any f32.
// Gives   e^x within 0.895 ulp (measured over every f32); exactly 1 at +-0; exactly 0 below kExpLowest, so never a
//         subnormal; +inf above kExpHighest; for a NaN the one quiet NaN 0x7fc00000.
inline float exp32(float x) {
  const float shifted = fma32(x, kExpLog2E, kExpShift);
  const float n = shifted - kExpShift;
  float r = fma32(n, kExpNegLn2Hi, x);
  r = fma32(n, kExpNegLn2Lo, r);
  float p = kExpPolynomial[4];
  p = fma32(p, r, kExpPolynomial[3]);
  p = fma32(p, r, kExpPolynomial[2]);
  p = fma32(p, r, kExpPolynomial[1]);
  p = fma32(p, r, kExpPolynomial[0]);
  p = fma32(p, r, 1.0f);
  p = fma32(p, r, 1.0f);
  // Times 2^n: the low bits of `shifted` are n, and the shift drops all the others.
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(p) + (std::bit_cast<std::uint32_t>(shifted) << 23);
  float result = std::bit_cast<float>(scaled);
  result = x < kExpLowest ? 0.0f : result;
  result = x > kExpHighest ? std::numeric_limits<float>::infinity() : result;
  return x == x ? result : kExpNaN;
}

}  // namespace seriatim
