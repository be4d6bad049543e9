// How far two numbers are apart, as those who compare outputs and scores mean it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace seriatim {

// |a - b| in units of `scale`; 0 where they are equal, infinities included; infinity where it is no number: beside a
// NaN, and between an infinity and anything else.
inline double distance_over(double a, double b, double scale) {
  if (a == b) return 0.0;
  const double distance = std::fabs(a - b) / scale;
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

// In units of the larger magnitude of the two.
inline double relative_distance(double a, double b) {
  return distance_over(a, b, std::max(std::fabs(a), std::fabs(b)));
}

}  // namespace seriatim
