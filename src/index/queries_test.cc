#include <gtest/gtest.h>

#include "support/index.hpp"

namespace seriatim {
namespace {

using test::Elements;

class IndexQueries : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(DTypes, IndexQueries, ::testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         test::dtype_label);

// A group of one token is its own mean, so a query head is prepared exactly as such a group is pooled.
TEST_P(IndexQueries, ArePreparedAsAGroupOfOneTokenIsPooled) {
  auto options = test::small_index(GetParam());
  const Geometry geometry = test::admitted(options);
  options.group_tokens = 1;
  options.rope_axes = {0, 1, 2, 2, 1, 0, 1, 1};
  const Geometry single = test::admitted(options);
  const Elements raw = Elements::random(GetParam(), 20 * 3 * 24, 1);
  const auto weight = test::some_weights(24);
  std::vector<std::int64_t> positions;
  std::vector<Coordinates> coordinates;
  for (std::int32_t q = 0; q < 20; ++q) {
    positions.push_back(Geometry::kPositions - 1 - 777 * q);  // any order
    const auto p = static_cast<std::int32_t>(positions.back());
    coordinates.push_back({p, p, p});
  }
  Elements prepared(GetParam(), 20 * 3 * 24);
  ASSERT_TRUE(prepare_index_queries(geometry, test::view_of(weight), raw.view({20, 3, 24}), positions.data(), nullptr,
                                    prepared.writable({20, 3, 24}))
                  .ok());
  Elements pooled(GetParam(), 20 * 3 * 24);
  for (std::int64_t q = 0; q < 20; ++q) {
    for (std::int64_t h = 0; h < 3; ++h) {
      ConstTensor head = raw.view({60, 24});
      head.data = head.at(q * 3 + h);
      head.shape[0] = 1;
      Tensor out = pooled.writable({60, 24});
      out.data = out.at(q * 3 + h);
      out.shape[0] = 1;
      const auto at = static_cast<std::size_t>(q);
      ASSERT_TRUE(pool_keys(single, test::view_of(weight), head, positions[at], &coordinates[at], out).ok());
    }
  }
  EXPECT_NE(prepared.bytes(), raw.bytes());
  EXPECT_EQ(prepared.bytes(), pooled.bytes());
}

TEST_P(IndexQueries, TakeTheCoordinatesOfTheirOwnQuery) {
  auto options = test::small_index(GetParam());
  const Geometry text = test::admitted(options);
  options.rope_axes.assign(8, 1);
  const Geometry axial = test::admitted(options);
  const Elements raw = Elements::random(GetParam(), 2 * 3 * 24, 2);
  const auto weight = test::some_weights(24);
  const std::int64_t positions[] = {40, 900};
  const Coordinates coordinates[] = {{0, 900, 1}, {1, 40, 2}};
  const std::int64_t swapped[] = {900, 40};
  Elements by_axis(GetParam(), 2 * 3 * 24);
  Elements by_position(GetParam(), 2 * 3 * 24);
  ASSERT_TRUE(prepare_index_queries(axial, test::view_of(weight), raw.view({2, 3, 24}), positions, coordinates,
                                    by_axis.writable({2, 3, 24}))
                  .ok());
  ASSERT_TRUE(prepare_index_queries(text, test::view_of(weight), raw.view({2, 3, 24}), swapped, nullptr,
                                    by_position.writable({2, 3, 24}))
                  .ok());
  EXPECT_EQ(by_axis.bytes(), by_position.bytes());
}

TEST_P(IndexQueries, PassUnchangedWherePoolingIsNone) {
  auto options = test::small_index(GetParam());
  options.group_tokens = 1;
  options.pooling = Pooling::kNone;
  const Elements raw = Elements::random(GetParam(), 2 * 3 * 24, 3);
  const std::int64_t positions[] = {7, 8};
  Elements prepared(GetParam(), 2 * 3 * 24);
  ASSERT_TRUE(prepare_index_queries(test::admitted(options), {}, raw.view({2, 3, 24}), positions, nullptr,
                                    prepared.writable({2, 3, 24}))
                  .ok());
  EXPECT_EQ(prepared.bytes(), raw.bytes());
}

TEST_P(IndexQueries, NoQueriesNeedNoMemory) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  const auto weight = test::some_weights(24);
  const ConstTensor none = dense_view(static_cast<const void*>(nullptr), GetParam(), {0, 3, 24});
  const Tensor nowhere = dense_view(static_cast<void*>(nullptr), GetParam(), {0, 3, 24});
  EXPECT_TRUE(prepare_index_queries(geometry, test::view_of(weight), none, nullptr, nullptr, nowhere).ok());
}

}  // namespace
}  // namespace seriatim
