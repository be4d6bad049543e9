#include "base/exp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "base/ulp_distance.hpp"

namespace seriatim {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Every 1021st bit pattern; all of them when SERIATIM_EXHAUSTIVE is set (minutes).
std::uint64_t stride() { return std::getenv("SERIATIM_EXHAUSTIVE") != nullptr ? 1 : 1021; }

TEST(Exp, StaysWithinItsStatedErrorOverTheWholeRange) {
  std::uint64_t compared = 0;
  double worst = 0.0;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += stride()) {
    const float x = float_of(static_cast<std::uint32_t>(bits));
    if (!(x >= kExpLowest && x <= kExpHighest)) continue;
    const float got = exp32(x);
    ASSERT_TRUE(std::isnormal(got)) << std::hexfloat << x;
    worst = std::max(worst, ulp_distance(got, std::exp(static_cast<long double>(x))));
    ++compared;
  }
  EXPECT_GT(compared, 2'000'000'000u / stride());
  EXPECT_LT(worst, 0.895);
  EXPECT_GT(worst, 0.5);  // no evaluation in f32 is better: a smaller figure means that nothing was measured
}

TEST(Exp, PatternsOutsideItsRangeGiveExactlyZeroInfinityOrTheOneNaN) {
  std::uint64_t zeros = 0;
  std::uint64_t infinities = 0;
  std::uint64_t nans = 0;
  for (std::uint64_t bits = 0; bits <= 0xffffffffu; bits += stride()) {
    const float x = float_of(static_cast<std::uint32_t>(bits));
    const std::uint32_t got = bits_of(exp32(x));
    if (std::isnan(x)) {
      ASSERT_EQ(got, 0x7fc00000u) << std::hex << bits;
      ++nans;
    } else if (x < kExpLowest) {
      ASSERT_EQ(got, 0u) << std::hexfloat << x;
      ++zeros;
    } else if (x > kExpHighest) {
      ASSERT_EQ(got, 0x7f800000u) << std::hexfloat << x;
      ++infinities;
    }
  }
  EXPECT_GT(zeros, 1'000'000'000u / stride());
  EXPECT_GT(infinities, 1'000'000'000u / stride());
  EXPECT_GT(nans, 16'000'000u / stride());
}

TEST(Exp, ZeroGivesExactlyOne) {
  EXPECT_EQ(bits_of(exp32(0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp32(-0.0f)), bits_of(1.0f));
  EXPECT_EQ(bits_of(exp32(0x1p-149f)), bits_of(1.0f));
}

TEST(Exp, TheLimitsAreTheLastInputsWithNormalAndFiniteResults) {
  const double smallest_normal = std::numeric_limits<float>::min();
  EXPECT_GE(std::exp(static_cast<double>(kExpLowest)), smallest_normal);
  EXPECT_LT(std::exp(static_cast<double>(std::nextafter(kExpLowest, -100.0f))), smallest_normal);
  EXPECT_LT(std::exp(static_cast<double>(kExpHighest)), 0x1.ffffffp+127);
  EXPECT_GT(std::exp(static_cast<double>(std::nextafter(kExpHighest, 100.0f))), 0x1.ffffffp+127);
  EXPECT_GE(exp32(kExpLowest), std::numeric_limits<float>::min());
  EXPECT_LE(exp32(kExpHighest), std::numeric_limits<float>::max());
  EXPECT_EQ(bits_of(exp32(std::nextafter(kExpLowest, -100.0f))), 0u);
  EXPECT_EQ(bits_of(exp32(-std::numeric_limits<float>::infinity())), 0u);
  EXPECT_EQ(exp32(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

// exp32 is not monotonic to the last bit; it never steps back by more than one ulp.
TEST(Exp, NeighboursNeverStepBackByMoreThanOneUlp) {
  std::uint64_t compared = 0;
  for (std::uint64_t magnitude = 0; magnitude < bits_of(-kExpLowest); magnitude += stride()) {
    const float x = float_of(0x80000000u | static_cast<std::uint32_t>(magnitude));
    const float below = float_of(0x80000000u | static_cast<std::uint32_t>(magnitude + 1));
    ASSERT_LE(bits_of(exp32(below)), bits_of(exp32(x)) + 1) << std::hexfloat << x;
    ++compared;
  }
  EXPECT_GT(compared, 1'000'000'000u / stride());
}

}  // namespace
}  // namespace seriatim
