// sincos32: correctly rounded sine and cosine of an f32 angle, by +, - and * of doubles and integer steps only.
//
// The angle is reduced with the leading bits of 2/pi in integers, so every finite f32 is reduced alike and nothing
// depends on libm or on a fused multiply-add. The series are carried in TwoDouble to some 2^-66 of the result. Compared
// once with a 64-bit significand for every positive finite f32: none differs, and no result lies nearer than 2^-58 of
// itself to a midpoint between two f32, so neither side of that comparison can have erred.
// Source: contract section 3; Payne and Hanek 1983, "Radian reduction for trigonometric functions"; Taylor's series.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/two_double.hpp"

namespace seriatim {

struct SinCos {
  float sin = 0.0f;
  float cos = 0.0f;
};

// 2/pi after 32 leading zero bits, 32 bits a word.
inline constexpr std::array<std::uint32_t, 9> kTwoOverPi{0x00000000u, 0xa2f9836eu, 0x4e441529u,
                                                         0xfc2757d1u, 0xf534ddc0u, 0xdb629599u,
                                                         0x3c439041u, 0xfe5163abu, 0xdebbc561u};
inline constexpr TwoDouble kHalfPi{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54};

// sin r = r + r z (s0 + z (s1 + z S(z))) and cos r = 1 + z (c0 + z (c1 + z C(z))), z = r^2: 1/n! with its sign.
inline constexpr std::array<TwoDouble, 2> kSinLead{
    {{-0x1.5555555555555p-3, -0x1.5555555555555p-57}, {0x1.1111111111111p-7, 0x1.1111111111111p-63}}};
inline constexpr std::array<double, 7> kSinTail{-0x1.a01a01a01a01ap-13, 0x1.71de3a556c734p-19,  -0x1.ae64567f544e4p-26,
                                                0x1.6124613a86d09p-33,  -0x1.ae7f3e733b81fp-41, 0x1.952c77030ad4ap-49,
                                                -0x1.2f49b46814157p-57};
inline constexpr std::array<TwoDouble, 2> kCosLead{{{-0.5, 0.0}, {0x1.5555555555555p-5, 0x1.5555555555555p-59}}};
inline constexpr std::array<double, 7> kCosTail{-0x1.6c16c16c16c17p-10, 0x1.a01a01a01a01ap-16,  -0x1.27e4fb7789f5cp-22,
                                                0x1.1eed8eff8d898p-29,  -0x1.93974a8c07c9dp-37, 0x1.ae7f3e733b81fp-45,
                                                -0x1.6827863b97d97p-53};

// An angle >= 0 as quadrant * pi/2 + rest, |rest| <= pi/4.
struct ReducedAngle {
  TwoDouble rest;
  std::uint32_t quadrant = 0;  // 0..3, whole turns dropped
};

// Takes   the magnitude bits of a finite f32 angle of at least 1/2.
inline ReducedAngle reduce_angle(std::uint32_t angle_bits) {
  const std::uint64_t significand = (angle_bits & 0x007fffffu) | 0x00800000u;
  // The angle is significand * 2^exponent. Bits of 2/pi above weight 2^(1 - exponent) give whole turns only; below them
  // 128 bits are kept, so that significand * window is the angle in quadrants, with 126 bits of fraction, modulo 4.
  const std::uint32_t first_bit = (angle_bits >> 23) - 120u;
  const std::uint32_t first_word = first_bit / 32;
  const std::uint32_t shift = first_bit % 32;
  std::array<std::uint32_t, 4> quadrants{};
  std::uint64_t carry = 0;
  for (std::uint32_t word = 4; word-- > 0;) {
    const std::uint64_t pair = (static_cast<std::uint64_t>(kTwoOverPi[first_word + word]) << 32) |
                               static_cast<std::uint64_t>(kTwoOverPi[first_word + word + 1]);
    carry += significand * ((pair << shift) >> 32);
    quadrants[word] = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  // The nearest quadrant, and the signed fraction that is left in the 128 bits below it.
  const bool negative = (quadrants[0] & 0x20000000u) != 0;
  const std::uint32_t quadrant = ((quadrants[0] >> 30) + (negative ? 1u : 0u)) & 3u;
  const std::uint32_t flip = negative ? 0xffffffffu : 0u;
  double weight = 0x1p-128;
  std::array<double, 4> parts{};
  for (std::uint32_t word = 4; word-- > 0;) {
    const std::uint32_t below = word < 3 ? quadrants[word + 1] >> 30 : 0u;
    parts[word] = static_cast<double>(((quadrants[word] << 2) | below) ^ flip) * weight;
    weight *= 0x1p+32;
  }
  // Flipping the bits negates up to 2^-128, which is far below the truncation of 2/pi.
  const TwoDouble top = fast_two_sum(parts[0], parts[1]);
  const TwoDouble fraction = fast_two_sum(top.hi, top.lo + (parts[2] + parts[3]));
  const TwoDouble rest = fraction * kHalfPi;
  return {negative ? -rest : rest, quadrant};
}

// z (lead0 + z (lead1 + z tail(z))).
inline TwoDouble even_series(TwoDouble z, const std::array<TwoDouble, 2>& lead, const std::array<double, 7>& tail) {
  double sum = tail[6];
  for (std::size_t i = 6; i-- > 0;) sum = sum * z.hi + tail[i];
  return z * (lead[0] + z * (lead[1] + two_product(z.hi, sum)));
}

// Takes   any f32, in radians.
// Gives   sine and cosine correctly rounded (nearest, ties to even) for every finite angle; sin(-0) is -0;
//         NaN for an infinity or a NaN.
inline SinCos sincos32(float angle) {
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  constexpr std::uint32_t kHalf = 0x3f000000u;
  const auto bits = std::bit_cast<std::uint32_t>(angle);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= kInfinity) {
    const float nan = std::bit_cast<float>(0x7fc00000u);
    return {nan, nan};
  }
  ReducedAngle reduced;
  if (magnitude < kHalf) {
    reduced.rest.hi = static_cast<double>(std::bit_cast<float>(magnitude));
  } else {
    reduced = reduce_angle(magnitude);
  }
  const TwoDouble r = reduced.rest;
  const TwoDouble z = r * r;
  float sine = round_to_f32(r + r * even_series(z, kSinLead, kSinTail));
  float cosine = round_to_f32(TwoDouble{1.0, 0.0} + even_series(z, kCosLead, kCosTail));
  if ((reduced.quadrant & 1u) != 0) {
    const float turned = -sine;
    sine = cosine;
    cosine = turned;
  }
  if ((reduced.quadrant & 2u) != 0) {
    sine = -sine;
    cosine = -cosine;
  }
  return {(bits >> 31) != 0 ? -sine : sine, cosine};
}

}  // namespace seriatim
