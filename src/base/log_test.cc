#include "base/log.hpp"

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

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Every 1021st bit pattern; all of them when SERIATIM_EXHAUSTIVE is set (minutes).
std::uint64_t stride() { return std::getenv("SERIATIM_EXHAUSTIVE") != nullptr ? 1 : 1021; }

TEST(Log, StaysWithinItsStatedErrorAndNeverDecreases) {
  std::uint64_t compared = 0;
  double worst = 0.0;
  float previous = -kInfinity;
  for (std::uint64_t bits = 1; bits < bits_of(kInfinity); bits += stride()) {
    const float x = float_of(static_cast<std::uint32_t>(bits));
    const float got = log32(x);
    ASSERT_GE(got, previous) << std::hexfloat << x;
    previous = got;
    if (x == 1.0f) continue;
    worst = std::max(worst, ulp_distance(got, std::log(static_cast<long double>(x))));
    ++compared;
  }
  EXPECT_GT(compared, 2'000'000'000u / stride());
  EXPECT_LT(worst, 0.873);
  EXPECT_GT(worst, 0.5);  // no evaluation in f32 is better: a smaller figure means that nothing was measured
}

TEST(Log, SubnormalsCountToo) {
  std::uint32_t compared = 0;
  for (std::uint32_t bits = 1; bits < 0x00800000u; bits += 17) {
    const float x = float_of(bits);
    ASSERT_LT(ulp_distance(log32(x), std::log(static_cast<long double>(x))), 0.873) << std::hexfloat << x;
    ++compared;
  }
  EXPECT_GT(compared, 400000u);
}

TEST(Log, EveryNeighbourOfOneIsAccurate) {
  EXPECT_EQ(bits_of(log32(1.0f)), 0u);
  const std::uint32_t one = bits_of(1.0f);
  std::uint32_t compared = 0;
  for (std::uint32_t bits = one - 200000; bits < one + 200000; ++bits) {
    if (bits == one) continue;
    const float x = float_of(bits);
    ASSERT_LT(ulp_distance(log32(x), std::log(static_cast<long double>(x))), 0.873) << std::hexfloat << x;
    ++compared;
  }
  EXPECT_EQ(compared, 399999u);
}

TEST(Log, ValuesOutsideTheDomainAreDefined) {
  EXPECT_EQ(log32(0.0f), -kInfinity);
  EXPECT_EQ(log32(-0.0f), -kInfinity);
  EXPECT_EQ(log32(kInfinity), kInfinity);
  std::uint32_t nans = 0;
  for (std::uint64_t bits = 0x80000001u; bits <= 0xffffffffu; bits += 4099) {
    ASSERT_EQ(bits_of(log32(float_of(static_cast<std::uint32_t>(bits)))), 0x7fc00000u) << std::hex << bits;
    ++nans;
  }
  EXPECT_GT(nans, 500000u);
  EXPECT_EQ(bits_of(log32(-kInfinity)), 0x7fc00000u);
  EXPECT_EQ(bits_of(log32(std::numeric_limits<float>::quiet_NaN())), 0x7fc00000u);
}

}  // namespace
}  // namespace seriatim
