// log32, and its constants for vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "base/fma.hpp"

namespace seriatim {

// clang-format off
#include "base/shared/host_words.h"
#include "base/shared/log.h"
#include "base/shared/host_words_end.h"
// clang-format on

inline constexpr float kLogLn2Hi = LOG_LN2_HI;
inline constexpr float kLogLn2Lo = LOG_LN2_LO;
inline constexpr float kLogPolynomial[] = {LOG_C0, LOG_C1, LOG_C2, LOG_C3, LOG_C4, LOG_C5, LOG_C6, LOG_C7};
inline constexpr std::uint32_t kLogSqrtHalfBits = LOG_SQRT_HALF_BITS;

}  // namespace seriatim

#undef LOG_LN2_HI
#undef LOG_LN2_LO
#undef LOG_C0
#undef LOG_C1
#undef LOG_C2
#undef LOG_C3
#undef LOG_C4
#undef LOG_C5
#undef LOG_C6
#undef LOG_C7
#undef LOG_SQRT_HALF_BITS
