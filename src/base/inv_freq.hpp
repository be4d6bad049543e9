// Inverse frequencies of RoPE from theta, in the two roundings that the reference makes.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/two_double.hpp"

namespace seriatim {

inline constexpr TwoDouble kLn2{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};

// log(x) to some 2^-98, x a normal positive double.
inline TwoDouble log_two_double(double x) {
  constexpr std::uint64_t kSqrtHalfBits = 0x3fe6a09e667f3bcdu;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::int64_t exponent = static_cast<std::int64_t>(bits - kSqrtHalfBits) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(exponent) << 52));
  // log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) / (m + 1), s^2 < 2^-5.
  const TwoDouble s = two_sum(m, -1.0) / two_sum(m, 1.0);
  const TwoDouble square = s * s;
  TwoDouble sum{0.0, 0.0};
  for (double odd = 43.0; odd >= 1.0; odd -= 2.0) sum = square * sum + TwoDouble{1.0, 0.0} / TwoDouble{odd, 0.0};
  return TwoDouble{static_cast<double>(exponent), 0.0} * kLn2 + TwoDouble{2.0, 0.0} * s * sum;
}

// e^x to some 2^-96 of itself, for |x| <= 90.
inline TwoDouble exp_two_double(TwoDouble x) {
  constexpr double kShift = 0x1.8p+52;
  const double n = (x.hi * 0x1.71547652b82fep+0 + kShift) - kShift;
  const TwoDouble r = x + -(TwoDouble{n, 0.0} * kLn2);
  TwoDouble sum{1.0, 0.0};
  for (double i = 27.0; i >= 1.0; i -= 1.0) sum = TwoDouble{1.0, 0.0} + r * sum / TwoDouble{i, 0.0};
  const auto scale = std::bit_cast<double>(static_cast<std::uint64_t>(1023 + static_cast<std::int64_t>(n)) << 52);
  return {sum.hi * scale, sum.lo * scale};
}

// Takes   2^-126 <= theta < 2^128; 0 <= pair < rotary_dim / 2; rotary_dim <= 2^24.
// Gives   1 / p in f32, where p = f32(theta^e) correctly rounded and e = f32(2 * pair / rotary_dim); NaN where an
//         argument is out of its range.
// Source  contract section 3; `1.0 / (theta ** (arange(0, dim, 2).to(float) / dim))` of the reference layer.
inline float inv_freq_from_theta(double theta, std::int64_t pair, std::int64_t rotary_dim) {
  const bool admitted = theta >= 0x1p-126 && theta < 0x1p+128 && pair >= 0 && pair < rotary_dim / 2 &&
                        rotary_dim <= (std::int64_t{1} << 24);
  if (!admitted) return std::numeric_limits<float>::quiet_NaN();
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(rotary_dim);
  TwoDouble power = exp_two_double(log_two_double(theta) * TwoDouble{static_cast<double>(exponent), 0.0});
  // A low part this small is the error of the evaluation: the power is exact (10000^0.5), and a tie must stay a tie.
  if (power.lo < power.hi * 0x1p-90 && power.lo > power.hi * -0x1p-90) power.lo = 0.0;
  return 1.0f / round_to_f32(power);
}

}  // namespace seriatim
