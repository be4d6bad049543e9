// Units in the last place of f32.
#pragma once

#include <algorithm>
#include <cmath>

namespace seriatim {

// What one unit is worth at a finite magnitude.
template <typename Real>
Real f32_ulp_at(Real magnitude) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  return std::ldexp(Real{1}, std::max(exponent - 24, -149));
}

// How far an f32 lies from a finer value, in units at that value.
inline double ulp_distance(float got, long double exact) {
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / f32_ulp_at(exact));
}

}  // namespace seriatim
