// fma32: the one fused multiply-add of the library, correctly rounded on every machine.
//
// Where the compile target has the instruction it is used; elsewhere the exact product (48 bits fit a double) is added
// with one rounding to odd, which makes the second rounding to f32 harmless. Valid for every f32 input, subnormal
// results included. Source: contract section 5; rounding to odd after Boldo and Melquiond, "Emulation of a FMA".
#pragma once

#include <bit>
#include <cstdint>

namespace seriatim {

inline float fma32_software(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);  // exact
  const double addend = static_cast<double>(c);
  double sum = product + addend;
  // Knuth's two-sum: `error` is exactly what the rounding of `sum` lost.
  const double shadow = sum - product;
  const double error = (product - (sum - shadow)) + (addend - shadow);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  const bool finite = (bits & 0x7ff0000000000000u) != 0x7ff0000000000000u;
  if (finite && error != 0.0 && (bits & 1u) == 0) {
    // Round to odd: step the even result towards the lost part, which lands on the odd neighbour.
    const bool away = (error > 0.0) == (sum > 0.0);
    sum = std::bit_cast<double>(away ? bits + 1 : bits - 1);
  }
  return static_cast<float>(sum);
}

inline float fma32(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return fma32_software(a, b, c);
#endif
}

}  // namespace seriatim
