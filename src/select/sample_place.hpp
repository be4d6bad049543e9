// Where a sample of scores is read: one place in each of kSampleSize equal stretches, scattered so that no regular input
// meets them. The tests know them too, to be the adversary who does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace seriatim {

inline constexpr std::uint32_t kSampleSize = 1024;

// The place of sample `i` < kSampleSize among `count` >= kSampleSize scores.
inline std::size_t sample_place(std::uint32_t i, std::size_t count) {
  const std::uint64_t step = (std::uint64_t{count} << 32) / kSampleSize;
  const std::uint64_t stretch = count / kSampleSize;
  std::uint32_t mixed = (i + 1) * 0x9e3779b9u;
  mixed = (mixed ^ (mixed >> 16)) * 0x85ebca6bu;
  mixed = (mixed ^ (mixed >> 13)) * 0xc2b2ae35u;
  mixed ^= mixed >> 16;
  return static_cast<std::size_t>((i * step >> 32) + (mixed * stretch >> 32));
}

}  // namespace seriatim
