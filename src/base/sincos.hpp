// sincos32, and its constants for vector code.
#pragma once

#include <bit>
#include <cstdint>

#include "base/two_double.hpp"

namespace seriatim {

// clang-format off
#include "base/shared/host_words.h"
#include "base/shared/sincos.h"
#include "base/shared/host_words_end.h"
// clang-format on

struct SinCos {
  float sin = 0.0f;
  float cos = 0.0f;
};

inline SinCos sincos32(float angle) {
  SinCos both;
  both.sin = sincos32_of(angle, &both.cos);
  return both;
}

}  // namespace seriatim
