#include "mask_row.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "base/half.hpp"
#include "support/random.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::uint16_t kHidden = 0xfc00;

TEST(MaskRow, NamesEveryCellThatIsNotMinusInfinity) {
  seriatim::testing::Random random(1);
  for (const std::int64_t cells : {0, 1, 15, 16, 17, 64, 1000}) {
    for (const int one_in : {1, 2, 40, 100000}) {
      std::vector<std::uint16_t> mask(static_cast<std::size_t>(cells), kHidden);
      std::vector<std::int32_t> want;
      for (std::int64_t i = 0; i < cells; ++i) {
        if (random.below(one_in) != 0) continue;
        mask[static_cast<std::size_t>(i)] = i % 2 == 0 ? 0x0000 : 0x8000;  // both zeros
        want.push_back(static_cast<std::int32_t>(i));
      }
      std::vector<std::int32_t> row(static_cast<std::size_t>(cells));
      const MaskRow read = read_mask_row(mask.data(), cells, row);
      ASSERT_EQ(read.count, static_cast<std::int64_t>(want.size()));
      row.resize(want.size());
      EXPECT_EQ(row, want);
      EXPECT_FALSE(read.biased);
    }
  }
}

TEST(MaskRow, CountsPastItsRoomAndWritesNothingThere) {
  const std::vector<std::uint16_t> mask(100, 0);
  std::vector<std::int32_t> row(11, -5);
  const MaskRow read = read_mask_row(mask.data(), 100, std::span(row).first(10));
  EXPECT_EQ(read.count, 100);
  EXPECT_EQ(row[9], 9);
  EXPECT_EQ(row[10], -5);
}

TEST(MaskRow, TellsWhetherAnyValueIsToBeAdded) {
  std::vector<std::uint16_t> mask(40, kHidden);
  mask[17] = to_f16(-0.5f);
  mask[30] = 0;
  std::vector<std::int32_t> row(40);
  const MaskRow read = read_mask_row(mask.data(), 40, row);
  ASSERT_EQ(read.count, 2);
  EXPECT_TRUE(read.biased);
  float values[2];
  read_mask_values(mask.data(), std::span(row).first(2), values);
  EXPECT_EQ(values[0], -0.5f);
  EXPECT_EQ(values[1], 0.0f);
}

}  // namespace
}  // namespace seriatim::plugin
