// Scores as integers that order alike, so that an interval of scores can be halved until it holds one.
#pragma once

#include <bit>
#include <cstdint>

namespace seriatim {

// Both zeros are 0. No NaN.
inline std::int64_t key_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  const auto magnitude = static_cast<std::int64_t>(bits & 0x7fffffffu);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}

inline float score_of(std::int64_t key) {
  const auto magnitude = static_cast<std::uint32_t>(key < 0 ? -key : key);
  return std::bit_cast<float>(key < 0 ? magnitude | 0x80000000u : magnitude);
}

}  // namespace seriatim
