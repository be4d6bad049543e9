#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "support/index.hpp"

namespace seriatim {
namespace {

using test::Elements;
using test::PoolDefinition;

class Pool : public ::testing::TestWithParam<DType> {
 protected:
  // Pools `tokens` raw keys from `first_position` in one call.
  Elements pool(const Geometry& geometry, const Elements& raw, std::int64_t tokens, std::int64_t first_position,
                const Coordinates* coordinates = nullptr) const {
    const std::int64_t dim = geometry.index_dim();
    Elements pooled(GetParam(), tokens / geometry.group_tokens() * dim);
    const auto weight = test::some_weights(dim);
    const Status status = pool_keys(geometry, test::view_of(weight), raw.view({tokens, dim}), first_position,
                                    coordinates, pooled.writable({tokens / geometry.group_tokens(), dim}));
    EXPECT_TRUE(status.ok()) << status.message();
    return pooled;
  }

  std::vector<float> defined(const Geometry& geometry, const Elements& raw, std::int64_t group,
                             std::int64_t first_position, unsigned roundings = test::kEveryStep) const {
    const std::int64_t r = geometry.group_tokens();
    std::vector<std::vector<float>> keys;
    for (std::int64_t t = 0; t < r; ++t)
      keys.push_back(test::values(raw, (group * r + t) * geometry.index_dim(), geometry.index_dim()));
    const std::vector<std::int64_t> at(geometry.inv_freq().size(), first_position + group * r);
    return PoolDefinition{geometry, test::some_weights(geometry.index_dim()), roundings}.pooled(keys, at);
  }
};

INSTANTIATE_TEST_SUITE_P(DTypes, Pool, ::testing::Values(DType::kF32, DType::kBf16, DType::kF16), test::dtype_label);

TEST_P(Pool, EveryStepIsTheDefinitionsBitForBit) {
  std::int64_t compared = 0;
  for (const std::int64_t r : {1, 2, 3, 4, 7}) {
    auto options = test::small_index(GetParam());
    options.group_tokens = r;
    options.budget_tokens = r;
    const Geometry geometry = test::admitted(options);
    for (const std::int64_t position :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000003}, Geometry::kPositions - 30 * r}) {
      const Elements raw = Elements::random(GetParam(), 30 * r * 24, static_cast<std::uint64_t>(r));
      const Elements pooled = pool(geometry, raw, 30 * r, position);
      for (std::int64_t group = 0; group < 30; ++group) {
        const auto expected = defined(geometry, raw, group, position);
        for (std::int64_t i = 0; i < 24; ++i, ++compared) {
          ASSERT_EQ(test::bits_of(pooled.get(group * 24 + i)), test::bits_of(expected[static_cast<std::size_t>(i)]))
              << "r " << r << " position " << position << " group " << group << " dim " << i;
        }
      }
    }
  }
  EXPECT_EQ(compared, 5 * 4 * 30 * 24);
}

using PoolHalves = Pool;
INSTANTIATE_TEST_SUITE_P(DTypes, PoolHalves, ::testing::Values(DType::kBf16, DType::kF16), test::dtype_label);

// Leaving out any one rounding gives other bits, so the test above sees each of them. (Without the last, storing
// rounds.)
TEST_P(PoolHalves, EveryRoundingShowsInTheBits) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  const Elements raw = Elements::random(GetParam(), 400 * 24, 5);
  for (const unsigned step : {test::kMeanStep, test::kNormStep, test::kSinCosStep, test::kProductStep}) {
    int differing = 0;
    for (std::int64_t group = 0; group < 100; ++group) {
      auto without = defined(geometry, raw, group, 70, test::kEveryStep & ~step);
      for (float& each : without) each = test::nearest(GetParam(), each);
      differing += without != defined(geometry, raw, group, 70) ? 1 : 0;
    }
    EXPECT_GT(differing, 10) << "step " << step;
  }
}

TEST_P(Pool, AnyChunkingGivesTheBitsOfOneCall) {
  const std::int64_t dim = 24;
  for (const std::int64_t r : {1, 3, 4}) {
    auto options = test::small_index(GetParam());
    options.group_tokens = r;
    options.budget_tokens = r;
    const Geometry geometry = test::admitted(options);
    const std::int64_t tokens = 64 * r + r - 1;
    const Elements raw = Elements::random(GetParam(), tokens * dim, 6);
    const Elements whole = pool(geometry, raw, tokens, 1000003);
    for (const std::int64_t chunk : {1, 2, 3, 5, 64}) {  // most chunks end inside a group
      Elements pooled(GetParam(), 64 * dim);
      const auto weight = test::some_weights(dim);
      std::int64_t closed = 0;
      for (std::int64_t held = 0; held < tokens;) {
        held = std::min(held + chunk, tokens);
        const std::int64_t closing = held / r - closed;
        ConstTensor keys = raw.view({tokens, dim});
        keys.data = keys.at(closed * r);
        keys.shape[0] = held - closed * r;  // with the open tail
        Tensor out = pooled.writable({64, dim});
        out.data = out.at(closed);
        out.shape[0] = closing;
        ASSERT_TRUE(pool_keys(geometry, test::view_of(weight), keys, 1000003 + closed * r, nullptr, out).ok());
        closed += closing;
      }
      EXPECT_EQ(closed, 64);
      EXPECT_EQ(pooled.bytes(), whole.bytes()) << "r " << r << " chunk " << chunk;
    }
  }
}

TEST_P(Pool, TheOpenTailChangesNothing) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  Elements raw = Elements::random(GetParam(), 11 * 24, 7);
  const Elements closed = pool(geometry, raw, 8, 5);
  EXPECT_EQ(pool(geometry, raw, 11, 5).bytes(), closed.bytes());
  EXPECT_EQ(pool(geometry, raw, 3, 5).bytes().size(), 0u);
}

// The rotation pairs dim i with dim i + rotary/2; the dims past the rotary ones pass through.
TEST_P(Pool, RotationTurnsHalvesAndLetsTheRestPass) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  const Elements raw = Elements::random(GetParam(), 4 * 24, 8);
  const Elements still = pool(geometry, raw, 4, 0);  // at position 0 nothing turns
  const Elements turned = pool(geometry, raw, 4, 1000);
  for (std::int64_t i = 16; i < 24; ++i) EXPECT_EQ(test::bits_of(turned.get(i)), test::bits_of(still.get(i))) << i;
  const double slack = GetParam() == DType::kF32 ? 1e-6 : 4e-2;
  for (std::int64_t i = 0; i < 8; ++i) {
    const auto angle = static_cast<double>(1000.0f * geometry.inv_freq()[static_cast<std::size_t>(i)]);
    const double a = static_cast<double>(still.get(i));
    const double b = static_cast<double>(still.get(i + 8));
    EXPECT_NEAR(static_cast<double>(turned.get(i)), a * std::cos(angle) - b * std::sin(angle), slack) << i;
    EXPECT_NEAR(static_cast<double>(turned.get(i + 8)), b * std::cos(angle) + a * std::sin(angle), slack) << i;
    EXPECT_TRUE(i >= 4 || turned.get(i) != still.get(i)) << i;  // the slowest pairs hardly turn
  }
}

TEST_P(Pool, ANormedKeyHasARootMeanSquareOfOne) {
  auto options = test::small_index(GetParam());
  options.index_rotary_dim = 0;
  const Geometry geometry = test::admitted(options);
  Elements raw = Elements::random(GetParam(), 4 * 24, 9);
  const std::vector<float> no_weight(24, 0.0f);
  Elements pooled(GetParam(), 24);
  ASSERT_TRUE(
      pool_keys(geometry, test::view_of(no_weight), raw.view({4, 24}), 0, nullptr, pooled.writable({1, 24})).ok());
  double squares = 0.0;
  for (std::int64_t i = 0; i < 24; ++i) squares += std::pow(static_cast<double>(pooled.get(i)), 2.0);
  EXPECT_NEAR(std::sqrt(squares / 24.0), 1.0, GetParam() == DType::kF32 ? 1e-5 : 1e-2);
  for (std::int64_t i = 0; i < 4 * 24; ++i) raw.set(i, 0.0f);  // the epsilon keeps it finite
  ASSERT_TRUE(
      pool_keys(geometry, test::view_of(no_weight), raw.view({4, 24}), 0, nullptr, pooled.writable({1, 24})).ok());
  for (std::int64_t i = 0; i < 24; ++i) EXPECT_EQ(test::bits_of(pooled.get(i)), 0u);
}

class PoolAxes : public Pool {
 protected:
  PoolAxes() {
    auto options = test::small_index(GetParam());
    text_ = test::admitted(options);
    options.rope_axes = axes_;
    axial_ = test::admitted(options);
  }
  const std::vector<std::uint8_t> axes_{0, 1, 2, 0, 1, 2, 0, 0};
  Geometry text_ = *Geometry::admit({});
  Geometry axial_ = *Geometry::admit({});
};

INSTANTIATE_TEST_SUITE_P(DTypes, PoolAxes, ::testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         test::dtype_label);

TEST_P(PoolAxes, TextHasEqualCoordinatesAndTheBitsOfNoAxes) {
  const Elements raw = Elements::random(GetParam(), 40 * 24, 10);
  std::vector<Coordinates> coordinates;
  for (std::int32_t t = 0; t < 40; ++t) coordinates.push_back({9 + t, 9 + t, 9 + t});
  const Elements with_axes = pool(axial_, raw, 40, 9, coordinates.data());
  EXPECT_EQ(with_axes.bytes(), pool(text_, raw, 40, 9).bytes());
  EXPECT_EQ(pool(text_, raw, 40, 9, coordinates.data()).bytes(), with_axes.bytes())
      << "coordinates are ignored without axes";
}

// A pair on axis a, at coordinates c, is what text gives that pair at position c[a]; only the group's first token
// counts.
TEST_P(PoolAxes, EveryPairTurnsByTheCoordinateOfItsAxis) {
  const Elements raw = Elements::random(GetParam(), 4 * 24, 11);
  const std::vector<Coordinates> coordinates{{70, 500, 1000003}, {1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  const Elements turned = pool(axial_, raw, 4, 0, coordinates.data());
  std::set<std::int64_t> seen;
  for (std::int64_t pair = 0; pair < 8; ++pair) {
    const std::int64_t position = coordinates[0][axes_[static_cast<std::size_t>(pair)]];
    const Elements text = pool(text_, raw, 4, position);
    EXPECT_EQ(test::bits_of(turned.get(pair)), test::bits_of(text.get(pair))) << pair;
    EXPECT_EQ(test::bits_of(turned.get(pair + 8)), test::bits_of(text.get(pair + 8))) << pair;
    seen.insert(position);
  }
  EXPECT_EQ(seen.size(), 3u);
}

TEST_P(Pool, FinishedKeysAreStoredAsGiven) {
  auto options = test::small_index(GetParam());
  options.group_tokens = 1;
  options.pooling = Pooling::kNone;
  const Geometry geometry = test::admitted(options);
  const Elements raw = Elements::random(GetParam(), 5 * 24, 12);
  Elements pooled(GetParam(), 5 * 24);
  ASSERT_TRUE(pool_keys(geometry, {}, raw.view({5, 24}), 1000003, nullptr, pooled.writable({5, 24})).ok());
  EXPECT_EQ(pooled.bytes(), raw.bytes());
}

TEST_P(Pool, StridesAreFollowedOnBothSides) {
  const Geometry geometry = test::admitted(test::small_index(GetParam()));
  const std::int64_t bytes = dtype_bytes(GetParam());
  const Elements dense = Elements::random(GetParam(), 8 * 24, 13);
  Elements spread = Elements::random(GetParam(), 8 * 61, 14);
  for (std::int64_t t = 0; t < 8; ++t) {
    for (std::int64_t i = 0; i < 24; ++i) spread.set(t * 61 + 2 * i, dense.get(t * 24 + i));
  }
  ConstTensor raw = spread.view({8, 24});
  raw.stride_bytes = {61 * bytes, 2 * bytes, 0, 0};
  Elements out(GetParam(), 2 * 73);
  Tensor pooled = out.writable({2, 24});
  pooled.stride_bytes = {73 * bytes, 3 * bytes, 0, 0};
  const auto weight = test::some_weights(24);
  const Elements untouched(GetParam(), 2 * 73);
  ASSERT_TRUE(pool_keys(geometry, test::view_of(weight), raw, 3, nullptr, pooled).ok());
  const Elements expected = pool(geometry, dense, 8, 3);
  for (std::int64_t place = 0; place < 146; ++place) {
    const std::int64_t dim = place % 73 / 3;
    const bool written = place % 73 % 3 == 0 && dim < 24;
    const float value = written ? expected.get(place / 73 * 24 + dim) : untouched.get(place);
    ASSERT_EQ(test::bits_of(out.get(place)), test::bits_of(value)) << place;
  }
}

}  // namespace
}  // namespace seriatim
