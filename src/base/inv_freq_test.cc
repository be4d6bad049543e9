#include "base/inv_freq.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tables/inv_freq_table.hpp"

namespace seriatim {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(InvFreq, EveryPairOfTheUsualThetasHasTheBitsOfMpfr) {
  ASSERT_GT(inv_freq_table::kInvFreq.size(), 800u);
  for (const inv_freq_table::Case& c : inv_freq_table::kInvFreq) {
    EXPECT_EQ(bits_of(inv_freq_from_theta(c.theta, c.pair, c.rotary_dim)), c.inv_freq)
        << "theta " << c.theta << ", pair " << c.pair << " of " << c.rotary_dim / 2;
  }
}

TEST(InvFreq, TheTwoRoundingsDifferFromOneInManyPlaces) {
  int unlike = 0;
  for (const inv_freq_table::Case& c : inv_freq_table::kInvFreq) {
    const double once = std::pow(static_cast<double>(c.theta), -2.0 * c.pair / c.rotary_dim);
    unlike += bits_of(static_cast<float>(once)) != c.inv_freq ? 1 : 0;
  }
  EXPECT_GT(unlike, 200);
}

TEST(InvFreq, ExactPowersAreExact) {
  EXPECT_EQ(inv_freq_from_theta(10000.0, 0, 64), 1.0f);
  EXPECT_EQ(inv_freq_from_theta(10000.0, 16, 64), 1.0f / 100.0f);
  EXPECT_EQ(inv_freq_from_theta(10000.0, 8, 64), 1.0f / 10.0f);
  EXPECT_EQ(inv_freq_from_theta(65536.0, 30, 64), 0x1p-15f);
}

// (2^24 + 1)^2 has its root on the midpoint of two floats, 2^24 + 3 on the next one: the ties go to even.
TEST(InvFreq, PowersOnAMidpointRoundToEven) {
  EXPECT_EQ(inv_freq_from_theta((0x1p+24 + 1) * (0x1p+24 + 1), 1, 4), 1.0f / 0x1p+24f);
  EXPECT_EQ(inv_freq_from_theta((0x1p+24 + 3) * (0x1p+24 + 3), 1, 4), 1.0f / (0x1p+24f + 4.0f));
}

TEST(InvFreq, ArgumentsOutOfRangeGiveNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double theta : {0.0, -1.0, 0x1p-127, 0x1p+128, std::numeric_limits<double>::infinity(), nan}) {
    EXPECT_TRUE(std::isnan(inv_freq_from_theta(theta, 1, 64))) << theta;
  }
  EXPECT_TRUE(std::isnan(inv_freq_from_theta(10000.0, -1, 64)));
  EXPECT_TRUE(std::isnan(inv_freq_from_theta(10000.0, 32, 64)));
  EXPECT_TRUE(std::isnan(inv_freq_from_theta(10000.0, 0, 0)));
  EXPECT_TRUE(std::isnan(inv_freq_from_theta(10000.0, 0, (std::int64_t{1} << 24) + 2)));
  EXPECT_FALSE(std::isnan(inv_freq_from_theta(0x1p-126, 31, 64)));
  EXPECT_FALSE(std::isnan(inv_freq_from_theta(0x1.fffffffffffffp+127, 31, 64)));
}

}  // namespace
}  // namespace seriatim
