#include "base/distance.hpp"

#include <gtest/gtest.h>

namespace seriatim {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(Distance, IsRelativeToTheLargerMagnitude) {
  EXPECT_EQ(relative_distance(3.0, 4.0), 0.25);
  EXPECT_EQ(relative_distance(-4.0, 4.0), 2.0);
  EXPECT_EQ(relative_distance(0.0, 4.0), 1.0);
  EXPECT_EQ(distance_over(3.0, 4.0, 8.0), 0.125);
}

TEST(Distance, EqualNumbersAreNotApart) {
  EXPECT_EQ(relative_distance(0.0, -0.0), 0.0);
  EXPECT_EQ(relative_distance(kInfinite, kInfinite), 0.0);
  EXPECT_EQ(distance_over(-kInfinite, -kInfinite, 1.0), 0.0);
}

TEST(Distance, WhatIsNoNumberIsInfinitelyFar) {
  EXPECT_EQ(relative_distance(kInfinite, 1.0), kInfinite);
  EXPECT_EQ(relative_distance(kInfinite, -kInfinite), kInfinite);
  EXPECT_EQ(relative_distance(kNaN, 1.0), kInfinite);
  EXPECT_EQ(relative_distance(1.0, kNaN), kInfinite);
  EXPECT_EQ(relative_distance(kNaN, kNaN), kInfinite);
  EXPECT_EQ(distance_over(kNaN, 1.0, 2.0), kInfinite);
}

}  // namespace
}  // namespace seriatim
