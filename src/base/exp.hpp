// exp32, and its constants for vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "base/fma.hpp"

namespace seriatim {

// clang-format off
#include "base/shared/host_words.h"
#include "base/shared/exp.h"
#include "base/shared/host_words_end.h"
// clang-format on

inline constexpr float kExpLog2E = EXP_LOG2E;
inline constexpr float kExpShift = EXP_SHIFT;
inline constexpr float kExpNegLn2Hi = EXP_NEG_LN2_HI;
inline constexpr float kExpNegLn2Lo = EXP_NEG_LN2_LO;
inline constexpr float kExpPolynomial[] = {EXP_C0, EXP_C1, EXP_C2, EXP_C3, EXP_C4};
inline constexpr float kExpLowest = EXP_LOWEST;
inline constexpr float kExpHighest = EXP_HIGHEST;

}  // namespace seriatim

#undef EXP_LOG2E
#undef EXP_SHIFT
#undef EXP_NEG_LN2_HI
#undef EXP_NEG_LN2_LO
#undef EXP_C0
#undef EXP_C1
#undef EXP_C2
#undef EXP_C3
#undef EXP_C4
#undef EXP_LOWEST
#undef EXP_HIGHEST
