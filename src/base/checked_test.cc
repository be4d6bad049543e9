#include "base/checked.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace seriatim {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

// __int128 holds every sum and product of two 64-bit integers.
__extension__ typedef __int128 Wide;
bool fits(Wide value) { return value >= kMin && value <= kMax; }

TEST(Checked, SumsAndProductsAgreeWithAWiderTypeAtEveryEdge) {
  std::vector<std::int64_t> edges{0, 1, 2, 3, kMax, kMax - 1, kMax / 2, kMax / 2 + 1, kMax / 3};
  for (const int shift : {15, 16, 31, 32, 33, 47, 62}) {
    for (const std::int64_t nudge : {-1, 0, 1}) edges.push_back((std::int64_t{1} << shift) + nudge);
  }
  for (std::size_t i = 0, positive = edges.size(); i < positive; ++i) edges.push_back(-edges[i]);
  edges.push_back(kMin);
  int absent = 0;
  int present = 0;
  for (const std::int64_t a : edges) {
    for (const std::int64_t b : edges) {
      const Wide sum = static_cast<Wide>(a) + b;
      const Wide product = static_cast<Wide>(a) * b;
      const auto got_sum = checked_add(a, b);
      const auto got_product = checked_mul(a, b);
      ASSERT_EQ(got_sum.has_value(), fits(sum)) << a << " + " << b;
      ASSERT_EQ(got_product.has_value(), fits(product)) << a << " * " << b;
      ASSERT_TRUE(!got_sum || *got_sum == sum) << a << " + " << b;
      ASSERT_TRUE(!got_product || *got_product == product) << a << " * " << b;
      absent += (got_sum ? 0 : 1) + (got_product ? 0 : 1);
      present += (got_sum ? 1 : 0) + (got_product ? 1 : 0);
    }
  }
  EXPECT_GT(absent, 500);
  EXPECT_GT(present, 500);
}

TEST(Checked, ProductsOfSizesAreAbsentPastTwoToTheSixtyThree) {
  constexpr std::int64_t k31 = std::int64_t{1} << 31;
  constexpr std::int64_t k32 = std::int64_t{1} << 32;
  EXPECT_EQ(checked_product({}), 1);
  EXPECT_EQ(checked_product({k31, 2}), k32);
  EXPECT_EQ(checked_product({k32, k31 - 1}), k32 * (k31 - 1));
  EXPECT_EQ(checked_product({k32, k31}), std::nullopt);  // 2^63
  EXPECT_EQ(checked_product({k32, k32}), std::nullopt);  // 2^64 wraps to 0
  EXPECT_EQ(checked_product({k32, k32, 0}), std::nullopt) << "an overflow on the way is not undone";
  EXPECT_EQ(checked_product({0, k32, k32}), 0);
  EXPECT_EQ(checked_product({-1, -1}), std::nullopt) << "a negative size is no size";
  EXPECT_EQ(checked_product({kMax, 1, 1}), kMax);
}

}  // namespace
}  // namespace seriatim
