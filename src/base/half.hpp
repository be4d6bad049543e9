// bf16 and f16 as storage, and elements of any float dtype.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "seriatim/tensor.hpp"

namespace seriatim {

// clang-format off
#include "base/shared/host_words.h"
#include "base/shared/half.h"
#include "base/shared/host_words_end.h"
// clang-format on

inline constexpr std::uint32_t kF32SignMask = 0x80000000u;
inline constexpr std::uint32_t kF32InfBits = 0x7f800000u;
inline constexpr std::uint32_t kF32QuietBit = 0x00400000u;

// The nearest value of a float dtype. An integer dtype is a caller's mistake and gives NaN.
inline float round_to(DType dtype, float value) {
  switch (dtype) {
    case DType::kF32:
      return value;
    case DType::kBf16:
      return from_bf16(to_bf16(value));
    case DType::kF16:
      return from_f16(to_f16(value));
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

// The greatest f32 that rounds to a finite value of a float dtype. An integer dtype is a caller's mistake and gives
// NaN.
inline float largest_before_overflow(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return std::numeric_limits<float>::max();
    case DType::kBf16:
      return std::bit_cast<float>(0x7f7f7fffu);  // below the midpoint past the largest bf16
    case DType::kF16:
      return std::bit_cast<float>(0x477fefffu);  // below 65520, as in to_f16
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

// One element of a float dtype at any address. An integer dtype is a caller's mistake and gives NaN.
inline float load_element(const std::byte* address, DType dtype) {
  std::uint16_t half = 0;
  float value = std::numeric_limits<float>::quiet_NaN();
  switch (dtype) {
    case DType::kF32:
      std::memcpy(&value, address, sizeof value);
      break;
    case DType::kBf16:
      std::memcpy(&half, address, sizeof half);
      value = from_bf16(half);
      break;
    case DType::kF16:
      std::memcpy(&half, address, sizeof half);
      value = from_f16(half);
      break;
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return value;
}

// Rounds once and stores at any address. An integer dtype is a caller's mistake and stores nothing.
inline void store_element(std::byte* address, DType dtype, float value) {
  std::uint16_t half = 0;
  switch (dtype) {
    case DType::kF32:
      std::memcpy(address, &value, sizeof value);
      return;
    case DType::kBf16:
      half = to_bf16(value);
      break;
    case DType::kF16:
      half = to_f16(value);
      break;
    case DType::kI32:
    case DType::kI64:
      return;
  }
  std::memcpy(address, &half, sizeof half);
}

}  // namespace seriatim
