#include "mask_row.hpp"

#include <cstring>

#include "base/half.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::uint16_t kMinusInfinity = 0xfc00;
constexpr std::uint64_t kFourOfThem = 0xfc00fc00fc00fc00u;
constexpr std::uint16_t kSign = 0x8000;

}  // namespace

MaskRow read_mask_row(const std::uint16_t* mask, std::int64_t cells, std::span<std::int32_t> row) {
  const auto room = static_cast<std::int64_t>(row.size());
  MaskRow read;
  std::uint32_t values = 0;
  const auto one = [&](std::int64_t cell) {
    if (mask[cell] == kMinusInfinity) return;
    if (read.count < room) row[static_cast<std::size_t>(read.count)] = static_cast<std::int32_t>(cell);
    ++read.count;
    values |= mask[cell];
  };
  std::int64_t cell = 0;
  for (; cell + 16 <= cells; cell += 16) {
    std::uint64_t words[4];
    std::memcpy(words, mask + cell, sizeof words);
    const std::uint64_t any =
        (words[0] ^ kFourOfThem) | (words[1] ^ kFourOfThem) | (words[2] ^ kFourOfThem) | (words[3] ^ kFourOfThem);
    if (any == 0) continue;
    for (std::int64_t i = 0; i < 4; ++i) {
      if (words[i] == kFourOfThem) continue;
      for (std::int64_t j = 0; j < 4; ++j) one(cell + 4 * i + j);
    }
  }
  for (; cell < cells; ++cell) one(cell);
  read.biased = (values & ~std::uint32_t{kSign}) != 0;
  return read;
}

void read_mask_values(const std::uint16_t* mask, std::span<const std::int32_t> row, float* values) {
  for (const std::int32_t cell : row) *values++ = from_f16(mask[cell]);
}

}  // namespace seriatim::plugin
