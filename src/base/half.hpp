// bf16 and f16 as storage: bits to f32 and back, by integer steps only, so every machine rounds alike.
//
// f32 -> half rounds to nearest, ties to even, once; subnormals are kept, overflow gives infinity, a NaN stays a quiet
// NaN with its sign and its leading payload bits. half -> f32 is exact, except that signalling NaNs become quiet.
// Source: contract section 5; IEEE 754-2019, 5.4.2.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "seriatim/tensor.hpp"

namespace seriatim {

inline constexpr std::uint32_t kF32SignMask = 0x80000000u;
inline constexpr std::uint32_t kF32InfBits = 0x7f800000u;
inline constexpr std::uint32_t kF32QuietBit = 0x00400000u;

inline float from_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  const bool nan = (wide & ~kF32SignMask) > kF32InfBits;
  return std::bit_cast<float>(nan ? wide | kF32QuietBit : wide);
}

inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kF32SignMask) > kF32InfBits) return static_cast<std::uint16_t>((bits | kF32QuietBit) >> 16);
  // Half of the last kept place, less one where that place is even: ties go to even; the carry reaches the exponent.
  const std::uint32_t round = 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>((bits + round) >> 16);
}

inline float from_f16(std::uint16_t bits) {
  const std::uint32_t sign = (static_cast<std::uint32_t>(bits) & 0x8000u) << 16;
  const std::uint32_t exponent = (static_cast<std::uint32_t>(bits) >> 10) & 0x1fu;
  const std::uint32_t fraction = static_cast<std::uint32_t>(bits) & 0x3ffu;
  if (exponent == 0x1fu) {
    const std::uint32_t quiet = fraction == 0 ? 0u : kF32QuietBit;
    return std::bit_cast<float>(sign | kF32InfBits | quiet | (fraction << 13));
  }
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (fraction << 13));
  if (fraction == 0) return std::bit_cast<float>(sign);
  // Subnormal: fraction * 2^-24, shifted up until the leading one is implicit.
  const auto shift = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21u;
  return std::bit_cast<float>(sign | ((113u - shift) << 23) | (((fraction << shift) & 0x3ffu) << 13));
}

inline std::uint16_t to_f16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits & kF32SignMask) >> 16);
  const std::uint32_t magnitude = bits & ~kF32SignMask;
  std::uint32_t half = 0;
  if (magnitude > kF32InfBits) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520, the midpoint past the largest f16: its tie goes to infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal f16
    half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {  // above 2^-25, half of the smallest subnormal, which is itself a tie with zero
    const std::uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    const std::uint32_t shift = 126u - (magnitude >> 23);  // 14..24 bits fall off
    const std::uint32_t kept = significand >> shift;
    half = (significand + ((1u << (shift - 1)) - 1u) + (kept & 1u)) >> shift;
  }
  return static_cast<std::uint16_t>(sign | half);
}

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
