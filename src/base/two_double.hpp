// TwoDouble: an unevaluated sum of two doubles, some 100 bits, for what must come out correctly rounded to f32.
//
// Only +, - and * of doubles (and / where it says so), so the bits are the same on every machine. Needs contraction
// off. The error bounds are the usual ones of a few units of 2^-104. Magnitudes must stay within 2^-400..2^400.
// Source: Dekker 1971, "A floating-point technique for extending the available precision"; Knuth, TAOCP 2, 4.2.2.
#pragma once

#include <bit>
#include <cstdint>

namespace seriatim {

struct TwoDouble {
  double hi = 0.0;
  double lo = 0.0;  // at most half a unit in the last place of hi
};

// a + b exactly.
inline TwoDouble two_sum(double a, double b) {
  const double sum = a + b;
  const double shadow = sum - a;
  return {sum, (a - (sum - shadow)) + (b - shadow)};
}

// a + b exactly, for |a| >= |b| or a == 0.
inline TwoDouble fast_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// a * b exactly: the factors are split into halves of 26 bits.
inline TwoDouble two_product(double a, double b) {
  constexpr double kSplit = 0x1p+27 + 1.0;
  const double a_wide = a * kSplit;
  const double a_high = a_wide - (a_wide - a);
  const double a_low = a - a_high;
  const double b_wide = b * kSplit;
  const double b_high = b_wide - (b_wide - b);
  const double b_low = b - b_high;
  const double product = a * b;
  return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

inline TwoDouble operator-(TwoDouble a) { return {-a.hi, -a.lo}; }

inline TwoDouble operator+(TwoDouble a, TwoDouble b) {
  const TwoDouble high = two_sum(a.hi, b.hi);
  const TwoDouble low = two_sum(a.lo, b.lo);
  const TwoDouble sum = fast_two_sum(high.hi, high.lo + low.hi);
  return fast_two_sum(sum.hi, sum.lo + low.lo);
}

inline TwoDouble operator*(TwoDouble a, TwoDouble b) {
  const TwoDouble product = two_product(a.hi, b.hi);
  return fast_two_sum(product.hi, product.lo + (a.hi * b.lo + a.lo * b.hi));
}

// Takes   b other than 0. Uses /.
inline TwoDouble operator/(TwoDouble a, TwoDouble b) {
  const double first = a.hi / b.hi;
  TwoDouble rest = a + -(b * TwoDouble{first, 0.0});
  const double second = rest.hi / b.hi;
  rest = rest + -(b * TwoDouble{second, 0.0});
  const TwoDouble quotient = fast_two_sum(first, second);
  return fast_two_sum(quotient.hi, quotient.lo + rest.hi / b.hi);
}

// The exact sum sum.hi + sum.lo, where sum.hi is the rounded sum, rounded once to f32, as IEEE 754 rounds.
inline float round_to_f32(TwoDouble sum) {
  double odd = sum.hi;
  const auto bits = std::bit_cast<std::uint64_t>(odd);
  const bool finite = (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
  if (finite && sum.lo != 0.0 && (bits & 1u) == 0) {
    // Round to odd: step the even result towards the lost part, which lands on the odd neighbour. The double then
    // lies on the true side of every f32 and of every midpoint between two.
    const bool away = (sum.lo > 0.0) == (odd > 0.0);
    odd = std::bit_cast<double>(away ? bits + 1 : bits - 1);
  }
  return static_cast<float>(odd);
}

}  // namespace seriatim
