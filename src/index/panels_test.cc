#include <gtest/gtest.h>

#include "support/index.hpp"

namespace seriatim {
namespace {

using test::Elements;

class Panels : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, Panels, ::testing::Values(DType::kF32, DType::kBf16, DType::kF16), test::dtype_label);

TEST_P(Panels, AreBlocksOfSixteenGroupsPerDimWithZerosPastTheLast) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  const std::int64_t bytes = dtype_bytes(GetParam());
  std::int64_t lanes = 0;
  for (const std::int64_t groups : {1, 2, 15, 16, 17, 31, 33, 100}) {
    const std::int64_t panels = (groups + 15) / 16;
    ASSERT_EQ(panel_bytes(geometry, groups), panels * 16 * 24 * bytes);
    const Elements pooled = Elements::random(GetParam(), groups * 24, 1);
    Elements memory(GetParam(), panels * 16 * 24 + 8);
    const Elements untouched(GetParam(), panels * 16 * 24 + 8);
    ASSERT_TRUE(pack_pooled_keys(geometry, pooled.view({groups, 24}), memory.data()).ok());
    for (std::int64_t panel = 0; panel < panels; ++panel) {
      for (std::int64_t dim = 0; dim < 24; ++dim) {
        for (std::int64_t lane = 0; lane < 16; ++lane, ++lanes) {
          const std::int64_t group = panel * 16 + lane;
          const float expected = group < groups ? pooled.get(group * 24 + dim) : 0.0f;
          ASSERT_EQ(test::bits_of(memory.get((panel * 24 + dim) * 16 + lane)), test::bits_of(expected))
              << group << " " << dim;
        }
      }
    }
    for (std::int64_t past = panels * 16 * 24; past < panels * 16 * 24 + 8; ++past) {
      ASSERT_EQ(test::bits_of(memory.get(past)), test::bits_of(untouched.get(past)));
    }
  }
  EXPECT_EQ(lanes, 24 * 16 * (1 + 1 + 1 + 1 + 2 + 2 + 3 + 7));
}

TEST_P(Panels, AViewFindsEveryGroupAcrossPagesOffsetsAndFirstSlots) {
  const std::int64_t bytes = dtype_bytes(GetParam());
  std::vector<std::byte> first(5000);
  std::vector<std::byte> second(5000);
  std::vector<std::byte> third(5000);
  const std::byte* pages[] = {first.data(), second.data(), third.data()};
  PooledKeys keys;
  keys.pages = pages;
  keys.page_groups = 32;
  keys.offset_bytes = 64;
  keys.first_slot = 29;
  keys.groups = 40;
  keys.dim = 24;
  keys.dtype = GetParam();
  EXPECT_EQ(keys.group(0), first.data() + 64 + (16 * 24 + 13) * bytes);  // slot 29: panel 1, lane 13
  EXPECT_EQ(keys.group(2), first.data() + 64 + (16 * 24 + 15) * bytes);
  EXPECT_EQ(keys.group(3), second.data() + 64);
  EXPECT_EQ(keys.group(18), second.data() + 64 + 15 * bytes);
  EXPECT_EQ(keys.group(19), second.data() + 64 + 16 * 24 * bytes);
  EXPECT_EQ(keys.group(35), third.data() + 64);
}

TEST_P(Panels, NoGroupsNeedNoMemory) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  EXPECT_EQ(panel_bytes(geometry, 0), 0);
  const ConstTensor none = dense_view(static_cast<const void*>(nullptr), GetParam(), {0, 24});
  EXPECT_TRUE(pack_pooled_keys(geometry, none, nullptr).ok());
}

TEST(Panels, SizesPastThirtyTwoBitsAreCounted) {
  auto options = test::small_index(DType::kF32);
  options.index_dim = 128;
  const Geometry geometry = test::admitted(options);
  EXPECT_EQ(panel_bytes(geometry, (std::int64_t{1} << 31) - 1), std::int64_t{1} << 40);
}

}  // namespace
}  // namespace seriatim
