// fma32: the one fused multiply-add of the library, correctly rounded on every machine.
//
// Where the compile target has the instruction it is used; elsewhere the exact product (48 bits fit a double) is added
// exactly as a TwoDouble and rounded once through rounding to odd. Valid for every f32 input, subnormal results
// included. Source: contract section 5; rounding to odd after Boldo and Melquiond, "Emulation of a FMA".
#pragma once

#include "base/two_double.hpp"

namespace seriatim {

inline float fma32_software(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);  // exact
  return round_to_f32(two_sum(product, static_cast<double>(c)));
}

inline float fma32(float a, float b, float c) {
#if defined(__FMA__) || defined(__aarch64__)
  return __builtin_fmaf(a, b, c);
#else
  return fma32_software(a, b, c);
#endif
}

}  // namespace seriatim
