#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include "support/bits.hpp"
#include "support/lent.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

// Panels for a story, and a pooler.
struct PanelCase {
  explicit PanelCase(const Story& of, Executor& executor = serial_executor(), Kernels kernels = default_kernels())
      : story(of),
        pooler(*PanelPooler::create(of.geometry, of.norm_weight, executor, kernels)),
        panels(of.geometry.index_dtype(),
               {of.geometry.groups(of.tokens()) / kPanel + 1, of.geometry.index_dim(), kPanel}) {
    panels.fill(-3.0f);
  }
  PoolAsk ask(std::int64_t tokens, std::int64_t first_group) {
    return {story.index_keys.view(), {}, {story.anchor, tokens}, 0, first_group, panels.writable()};
  }
  Result<float> pool(std::int64_t tokens, std::int64_t first_group) {
    const PoolAsk one = ask(tokens, first_group);
    return pooler.pool({&one, 1});
  }
  float at(std::int64_t group, std::int64_t dim) const {
    return panels.get((group / kPanel * story.geometry.index_dim() + dim) * kPanel + group % kPanel);
  }

  const Story& story;
  PanelPooler pooler;
  HostTensor panels;
};

// The pooled keys of a story, by pool_keys.
HostTensor pooled_keys(const Story& story) {
  const std::int64_t groups = story.geometry.groups(story.tokens());
  HostTensor pooled(story.geometry.index_dtype(), {groups, story.geometry.index_dim()});
  const Status status =
      pool_keys(story.geometry, story.norms(), story.index_keys.view(), story.anchor, nullptr, pooled.writable());
  EXPECT_TRUE(status.ok()) << status.message();
  return pooled;
}

TEST(Panels, HoldWhatPoolKeysGivesOnEveryKernelAndAnyThreads) {
  const auto threads = make_executor(2);
  for (const Kernels& kernels : Kernels::available()) {
    for (const std::int64_t r : {1, 4}) {
      for (const DType dtype : {DType::kF32, DType::kBf16}) {
        GeometryOptions options = small_path(r, dtype);
        if (r == 1) options.pooling = Pooling::kNone;
        const Story story(options, 203, 61, 40);
        const HostTensor want = pooled_keys(story);
        PanelCase panels(story, *threads, kernels);
        const auto largest = panels.pool(203, 0);
        ASSERT_TRUE(largest.ok()) << largest.status().message();
        float seen = 0.0f;
        for (std::int64_t g = 0; g < story.geometry.groups(203); ++g) {
          for (std::int64_t i = 0; i < 8; ++i) {
            ASSERT_EQ(panels.at(g, i), want.get(g * 8 + i)) << g << " " << i;
            seen = std::max(seen, std::fabs(panels.at(g, i)));
          }
        }
        EXPECT_EQ(*largest, seen);
      }
    }
  }
}

TEST(Panels, GrowGroupByGroupToTheSameBits) {
  const Story story(small_path(), 130, 63);
  PanelCase whole(story);
  ASSERT_TRUE(whole.pool(130, 0).ok());
  PanelCase grown(story);
  std::int64_t groups = 0;
  for (const std::int64_t tokens : {1, 4, 9, 63, 64, 71, 130}) {
    ASSERT_TRUE(grown.pool(tokens, groups).ok());
    groups = story.geometry.groups(tokens);
  }
  EXPECT_TRUE(same_bits(grown.panels.bytes(), whole.panels.bytes()));
  // Groups before the first that is asked for are not written.
  PanelCase later(story);
  ASSERT_TRUE(later.pool(130, 20).ok());
  EXPECT_EQ(later.at(19, 0), -3.0f);
  EXPECT_EQ(later.at(20, 0), whole.at(20, 0));
}

TEST(Panels, SeveralSequencesInOneCall) {
  const Story a(small_path(), 100, 65, 3);
  const Story b(small_path(), 50, 65, 7);
  PanelCase one(a);
  PanelCase two(b);
  const PoolAsk asks[] = {one.ask(100, 0), two.ask(50, 0)};
  ASSERT_TRUE(one.pooler.pool(asks).ok());
  PanelCase alone(b);
  PanelCase first(a);
  ASSERT_TRUE(first.pool(100, 0).ok());
  EXPECT_TRUE(same_bits(one.panels.bytes(), first.panels.bytes()));
  auto pooler = PanelPooler::create(b.geometry, a.norm_weight);
  const PoolAsk ask = alone.ask(50, 0);
  ASSERT_TRUE(pooler->pool({&ask, 1}).ok());
  EXPECT_TRUE(same_bits(two.panels.bytes(), alone.panels.bytes()));
}

TEST(Panels, RefuseWhatDoesNotFitByArgumentAndAsk) {
  const Story story(small_path(), 100, 67);
  PanelCase panels(story);
  const auto expect = [&](auto&& change, std::string_view argument, std::int64_t index = -1,
                          Code code = Code::kInvalidArgument) {
    PoolAsk asks[] = {panels.ask(100, 0), panels.ask(100, 0)};
    change(asks[1]);
    EXPECT_TRUE(fails_with(panels.pooler.pool(asks).status(), code, argument, 1, index));
  };
  expect([](PoolAsk& a) { a.raw.dtype = DType::kF16; }, "raw");
  expect([](PoolAsk& a) { a.raw.stride_bytes[0] *= 2; }, "raw");
  expect([](PoolAsk& a) { a.first_slot = 1; }, "raw");
  expect([](PoolAsk& a) { a.first_slot = std::numeric_limits<std::int64_t>::max(); }, "raw");
  expect([](PoolAsk& a) { a.first_group = -1; }, "first_group");
  expect([](PoolAsk& a) { a.panels.shape[0] = 1; }, "panels");
  expect([](PoolAsk& a) { a.panels.shape[1] = 7; }, "panels");
  expect([](PoolAsk& a) { a.panels.stride_bytes[0] += 64; }, "panels");
  expect([](PoolAsk& a) { a.run.tokens = -1; }, "visible");
  std::vector<std::int64_t> coordinates(300, 5);
  coordinates[100 + 16 * 4 * 1] = -1;  // of group 16
  const ConstTensor view = dense_view(std::as_const(coordinates).data(), DType::kI64, {3, 100});
  expect([&](PoolAsk& a) { a.coordinates = view; }, "coordinates", 16);
  expect([](PoolAsk& a) { a.coordinates.rank = 2; }, "coordinates");
}

TEST(Panels, RefuseKeysThatAreNotFiniteByGroup) {
  for (const bool finished : {false, true}) {
    GeometryOptions options = small_path(finished ? 1 : 4);
    if (finished) options.pooling = Pooling::kNone;
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      Story story(options, 100, 69);
      PanelCase panels(story);
      story.index_keys.set(8 * 70 + 3, bad);
      const std::int64_t group = finished ? 70 : 17;
      EXPECT_TRUE(fails_with(panels.pool(100, 0).status(), Code::kNotFinite, "raw", 0, group / kPanel * kPanel));
    }
  }
}

TEST(CheckFinite, NamesTheFirstElementOfAnyLayout) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    HostTensor tensor(dtype, {3, 4, 5});
    EXPECT_TRUE(check_finite("keys", tensor.view()).ok());
    for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
      tensor.fill(-1.5f);
      tensor.set(1 * 20 + 2 * 5 + 3, bad);
      tensor.set(2 * 20, bad);
      EXPECT_TRUE(fails_with(check_finite("keys", tensor.view()), Code::kNotFinite, "keys", 1, 13));
      ConstTensor turned = tensor.view();
      std::swap(turned.shape[1], turned.shape[2]);
      std::swap(turned.stride_bytes[1], turned.stride_bytes[2]);
      EXPECT_TRUE(fails_with(check_finite("keys", turned), Code::kNotFinite, "keys", 1, 3 * 4 + 2));
    }
  }
  const HostTensor whole(DType::kI32, {2});
  EXPECT_TRUE(fails_with(check_finite("rows", whole.view()), Code::kInvalidArgument, "rows"));
  EXPECT_TRUE(fails_with(check_finite("keys", {}), Code::kInvalidArgument, "keys"));
}

TEST(Panels, RefuseNormWeights) {
  const Geometry geometry = *Geometry::admit(small_path());
  std::vector<float> weights(8, 0.5f);
  EXPECT_TRUE(PanelPooler::create(geometry, weights).ok());
  EXPECT_TRUE(PanelPooler::create(geometry, {}).ok());
  EXPECT_TRUE(fails_with(PanelPooler::create(geometry, std::span(weights).first(7)).status(), Code::kInvalidArgument,
                         "norm_weight"));
  weights[5] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(fails_with(PanelPooler::create(geometry, weights).status(), Code::kNotFinite, "norm_weight", -1, 5));
}

}  // namespace
}  // namespace seriatim
