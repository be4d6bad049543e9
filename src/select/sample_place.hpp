// Where a sample of scores is read: one short run in each of kSamplePlaces equal stretches, scattered so that no
// regular input meets them. The tests know the places too, to be the adversary who does.
#pragma once

#include <cstdint>

namespace seriatim {

inline constexpr std::uint32_t kSamplePlaces = 256;
inline constexpr std::uint32_t kSampleRun = 8;  // neighbours cost hardly more to read than one
inline constexpr std::uint32_t kSampleSize = kSamplePlaces * kSampleRun;

// Where run `i` < kSamplePlaces begins among `count` scores, kSampleSize or more and less than 2^31.
inline std::uint32_t sample_place(std::uint32_t i, std::uint32_t count) {
  const std::uint32_t stretch = count / kSamplePlaces;
  const std::uint32_t begin = i * stretch + i * (count % kSamplePlaces) / kSamplePlaces;
  std::uint32_t mixed = (i + 1) * 0x9e3779b9u;
  mixed = (mixed ^ (mixed >> 16)) * 0x85ebca6bu;
  mixed = (mixed ^ (mixed >> 13)) * 0xc2b2ae35u;
  mixed ^= mixed >> 16;
  return begin + static_cast<std::uint32_t>(std::uint64_t{mixed} * (stretch - kSampleRun + 1) >> 32);
}

}  // namespace seriatim
