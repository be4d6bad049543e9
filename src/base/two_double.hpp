// TwoDouble for C++: the shared text and operators.
#pragma once

#include <bit>
#include <cstdint>

namespace seriatim {

// clang-format off
#include "base/shared/host_words.h"
#include "base/shared/two_double.h"
#include "base/shared/host_words_end.h"
// clang-format on

inline TwoDouble operator-(TwoDouble a) { return two_negative(a); }
inline TwoDouble operator+(TwoDouble a, TwoDouble b) { return two_add(a, b); }
inline TwoDouble operator*(TwoDouble a, TwoDouble b) { return two_times(a, b); }

// Takes   b other than 0. Uses /.
inline TwoDouble operator/(TwoDouble a, TwoDouble b) {
  const double first = a.hi / b.hi;
  TwoDouble rest = a + -(b * TwoDouble{first, 0.0});
  const double second = rest.hi / b.hi;
  rest = rest + -(b * TwoDouble{second, 0.0});
  const TwoDouble quotient = fast_two_sum(first, second);
  return fast_two_sum(quotient.hi, quotient.lo + rest.hi / b.hi);
}

}  // namespace seriatim
