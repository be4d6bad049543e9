#include "base/two_double.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace seriatim {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

TEST(TwoDouble, SumsAndProductsLoseNothing) {
  const TwoDouble sum = two_sum(1.0, 0x1p-80);
  EXPECT_EQ(sum.hi, 1.0);
  EXPECT_EQ(sum.lo, 0x1p-80);
  const TwoDouble swapped = two_sum(0x1p-80, 1.0);
  EXPECT_EQ(swapped.hi, 1.0);
  EXPECT_EQ(swapped.lo, 0x1p-80);
  // (1 + e)^2 = 1 + 2 e + e^2
  const TwoDouble product = two_product(1.0 + kEpsilon, 1.0 + kEpsilon);
  EXPECT_EQ(product.hi, 1.0 + 2 * kEpsilon);
  EXPECT_EQ(product.lo, kEpsilon * kEpsilon);
}

TEST(TwoDouble, AThirdTimesThreeIsOneTo100Bits) {
  const TwoDouble third = TwoDouble{1.0, 0.0} / TwoDouble{3.0, 0.0};
  EXPECT_EQ(third.hi, 0x1.5555555555555p-2);
  EXPECT_EQ(third.lo, 0x1.5555555555555p-56);
  const TwoDouble error = third * TwoDouble{3.0, 0.0} + TwoDouble{-1.0, 0.0};
  EXPECT_LT(error.hi, 0x1p-102);
  EXPECT_GT(error.hi, -0x1p-102);
}

TEST(TwoDouble, CancellationKeepsTheLowPart) {
  const TwoDouble rest = TwoDouble{1.0, 0x1p-60} + -TwoDouble{1.0, 0x1p-90};
  EXPECT_EQ(rest.hi, 0x1p-60 - 0x1p-90);
  EXPECT_EQ(rest.lo, 0.0);
}

TEST(TwoDouble, TheLowPartDecidesAtMidpointsOfF32) {
  const double midpoint = 1.0 + 0x1p-24;
  const float above = 1.0f + 0x1p-23f;
  for (const float sign : {1.0f, -1.0f}) {
    const auto round = [sign](double hi, double lo) { return sign * round_to_f32({sign * hi, sign * lo}); };
    EXPECT_EQ(round(midpoint, 0.0), 1.0f);
    EXPECT_EQ(round(midpoint, 0x1p-90), above);
    EXPECT_EQ(round(midpoint, -0x1p-90), 1.0f);
    EXPECT_EQ(round(midpoint + 0x1p-23, 0.0), above + 0x1p-23f);
    EXPECT_EQ(round(midpoint + 0x1p-23, -0x1p-90), above);
    EXPECT_EQ(round(1.0, -0x1p-90), 1.0f);
  }
  EXPECT_EQ(round_to_f32({0.0, 0.0}), 0.0f);
  EXPECT_EQ(round_to_f32({std::numeric_limits<double>::infinity(), 0.0}), std::numeric_limits<float>::infinity());
}

TEST(TwoDouble, MidpointsAmongSubnormalsAreDecidedToo) {
  EXPECT_EQ(round_to_f32({0x1p-150, 0.0}), 0.0f);
  EXPECT_EQ(round_to_f32({0x1p-150, 0x1p-230}), 0x1p-149f);
  EXPECT_EQ(round_to_f32({0x1.8p-149, -0x1p-230}), 0x1p-149f);
  EXPECT_EQ(round_to_f32({0x1.8p-149, 0.0}), 0x1p-148f);
}

}  // namespace
}  // namespace seriatim
