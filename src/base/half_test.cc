#include "base/half.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>

namespace seriatim {
namespace {

// A half format told by its fields, to decode and round by definition instead of by bit tricks.
struct Format {
  DType dtype;
  int fraction_bits;
  int min_exponent;  // of the smallest normal
  std::uint16_t infinity;
  std::uint16_t quiet_bit;
  std::uint16_t (*to)(float);
  float (*from)(std::uint16_t);
};

constexpr Format kBf16Format{DType::kBf16, 7, -126, 0x7f80, 0x0040, to_bf16, from_bf16};
constexpr Format kF16Format{DType::kF16, 10, -14, 0x7c00, 0x0200, to_f16, from_f16};

// The value that `bits` stands for, with infinity read as the next value of the largest binade.
double value_by_definition(const Format& format, std::uint32_t bits) {
  const std::uint32_t unit = 1u << format.fraction_bits;
  const std::uint32_t biased = bits / unit;
  const std::uint32_t fraction = bits % unit;
  const int exponent = format.min_exponent + (biased == 0 ? 0 : static_cast<int>(biased) - 1);
  const double significand = static_cast<double>(biased == 0 ? fraction : fraction + unit);
  return std::ldexp(significand, exponent - format.fraction_bits);
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

class Half : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(Formats, Half, testing::Values(kBf16Format, kF16Format),
                         [](const auto& format) { return std::string(dtype_name(format.param.dtype)); });

TEST_P(Half, EveryNumberWidensExactlyAndComesBack) {
  const Format& format = GetParam();
  int checked = 0;
  for (std::uint32_t magnitude = 0; magnitude <= format.infinity; ++magnitude) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto bits = static_cast<std::uint16_t>(sign | magnitude);
      const double definition = magnitude == format.infinity ? std::numeric_limits<double>::infinity()
                                                             : value_by_definition(format, magnitude);
      const float wide = format.from(bits);
      ASSERT_EQ(bits_of(wide), bits_of(static_cast<float>(sign != 0 ? -definition : definition))) << std::hex << bits;
      ASSERT_EQ(format.to(wide), bits);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2 * (format.infinity + 1));
}

TEST_P(Half, EveryNaNStaysAQuietNaNWithItsSign) {
  const Format& format = GetParam();
  int checked = 0;
  for (std::uint32_t magnitude = format.infinity + 1u; magnitude < 0x8000u; ++magnitude) {
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto bits = static_cast<std::uint16_t>(sign | magnitude);
      const float wide = format.from(bits);
      ASSERT_TRUE(std::isnan(wide));
      ASSERT_NE(bits_of(wide) & kF32QuietBit, 0u);
      ASSERT_EQ(format.to(wide), bits | format.quiet_bit);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2 * (0x7fff - format.infinity));
}

TEST_P(Half, NaNsWhosePayloadWouldFallOffStayNaN) {
  const Format& format = GetParam();
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu}) {
    const std::uint16_t half = format.to(std::bit_cast<float>(bits));
    EXPECT_GT(half & 0x7fff, format.infinity) << std::hex << bits;
    EXPECT_NE(half & format.quiet_bit, 0) << std::hex << bits;
    EXPECT_EQ(half >> 15, static_cast<int>(bits >> 31)) << std::hex << bits;
  }
}

TEST_P(Half, BoundariesRoundToNearestAndTiesToEven) {
  const Format& format = GetParam();
  int checked = 0;
  for (std::uint32_t low = 0; low < format.infinity; ++low) {
    const std::uint32_t high = low + 1;
    const double exact = (value_by_definition(format, low) + value_by_definition(format, high)) / 2;
    const auto middle = static_cast<float>(exact);
    ASSERT_EQ(static_cast<double>(middle), exact);
    const auto even = static_cast<std::uint16_t>(low % 2 == 0 ? low : high);
    for (const std::uint32_t sign : {0u, 0x8000u}) {
      const auto signed_float = [sign](std::uint32_t bits) { return std::bit_cast<float>(bits | (sign << 16)); };
      ASSERT_EQ(format.to(signed_float(bits_of(middle))), sign | even) << low;
      ASSERT_EQ(format.to(signed_float(bits_of(middle) - 1)), sign | low) << low;
      ASSERT_EQ(format.to(signed_float(bits_of(middle) + 1)), sign | high) << low;
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2 * format.infinity);
}

TEST_P(Half, PastTheLargestEverythingIsInfinityAndBelowTheSmallestZero) {
  const Format& format = GetParam();
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(format.to(largest), format.infinity);
  EXPECT_EQ(format.to(-largest), format.infinity | 0x8000);
  EXPECT_EQ(format.to(std::numeric_limits<float>::infinity()), format.infinity);
  EXPECT_EQ(format.to(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(format.to(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST_P(Half, TheLargestBeforeAnOverflowIsFiniteAndTheNextIsNot) {
  const Format& format = GetParam();
  const float largest = largest_before_overflow(format.dtype);
  EXPECT_EQ(format.to(largest), format.infinity - 1);
  EXPECT_EQ(format.to(-largest), (format.infinity - 1) | 0x8000);
  EXPECT_EQ(format.to(std::nextafter(largest, std::numeric_limits<float>::infinity())), format.infinity);
}

// Strides over all of f32: the chosen half is never further than either neighbour.
TEST_P(Half, SampledFloatsGoToTheNearestNeighbour) {
  const Format& format = GetParam();
  int checked = 0;
  for (std::uint64_t bits = 0; bits < 0x7f800000u; bits += 4099) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    const std::uint32_t half = format.to(value);
    const double gap = std::fabs(value_by_definition(format, half) - static_cast<double>(value));
    if (half > 0) {
      ASSERT_LE(gap, std::fabs(value_by_definition(format, half - 1) - static_cast<double>(value))) << std::hex << bits;
    }
    if (half < format.infinity) {
      ASSERT_LE(gap, std::fabs(value_by_definition(format, half + 1) - static_cast<double>(value))) << std::hex << bits;
    }
    ++checked;
  }
  EXPECT_GT(checked, 500000);
}

TEST_P(Half, ElementsAreReadAndWrittenAtOddAddresses) {
  const Format& format = GetParam();
  std::array<std::byte, 5> memory;
  memory.fill(std::byte{0xa5});
  store_element(memory.data() + 1, format.dtype, 1.0f / 3.0f);
  EXPECT_EQ(load_element(memory.data() + 1, format.dtype), format.from(format.to(1.0f / 3.0f)));
  EXPECT_EQ(load_element(memory.data() + 1, format.dtype), round_to(format.dtype, 1.0f / 3.0f));
  EXPECT_NE(round_to(format.dtype, 1.0f / 3.0f), 1.0f / 3.0f);
  for (const std::size_t untouched : {0u, 3u, 4u}) EXPECT_EQ(memory[untouched], std::byte{0xa5});
}

TEST(Element, F32PassesThroughWithEveryBit) {
  std::array<std::byte, 5> memory{};
  const float value = std::bit_cast<float>(0x80000001u);
  store_element(memory.data() + 1, DType::kF32, value);
  EXPECT_EQ(bits_of(load_element(memory.data() + 1, DType::kF32)), 0x80000001u);
  EXPECT_EQ(bits_of(round_to(DType::kF32, value)), 0x80000001u);
  EXPECT_EQ(largest_before_overflow(DType::kF32), std::numeric_limits<float>::max());
}

TEST(Element, IntegerDTypesReadAsNaNAndStoreNothing) {
  std::array<std::byte, 8> memory;
  memory.fill(std::byte{0xa5});
  for (const DType dtype : {DType::kI32, DType::kI64}) {
    store_element(memory.data(), dtype, 1.0f);
    EXPECT_TRUE(std::isnan(load_element(memory.data(), dtype)));
    EXPECT_TRUE(std::isnan(round_to(dtype, 1.0f)));
    EXPECT_TRUE(std::isnan(largest_before_overflow(dtype)));
  }
  for (const std::byte each : memory) EXPECT_EQ(each, std::byte{0xa5});
}

}  // namespace
}  // namespace seriatim
