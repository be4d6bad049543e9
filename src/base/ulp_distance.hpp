// For tests: how far an f32 lies from a finer value, in units of the last place that f32 has there.
#pragma once

#include <algorithm>
#include <cmath>

namespace seriatim {

inline double ulp_distance(float got, long double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  const long double ulp = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) / ulp);
}

}  // namespace seriatim
