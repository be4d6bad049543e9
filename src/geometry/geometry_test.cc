#include "seriatim/geometry.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::expect_refused;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();

Geometry admit_ok(const GeometryOptions& options) {
  auto geometry = Geometry::admit(options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().message();
  return geometry.ok() ? geometry.value() : *Geometry::admit({});
}

void refuse(const std::function<void(GeometryOptions&)>& spoil, std::string_view argument, std::string_view words,
            std::int64_t index = -1) {
  GeometryOptions options;
  spoil(options);
  expect_refused(Geometry::admit(options).status(), Code::kInvalidArgument, argument, {-1, index}, words);
}

TEST(Geometry, TheDefaultsAreThoseOfQsa) {
  const Geometry geometry = admit_ok({});
  EXPECT_EQ(geometry.group_tokens(), 4);
  EXPECT_EQ(geometry.budget_tokens(), 2048);
  EXPECT_EQ(geometry.budget_groups(), 512);
  EXPECT_EQ(geometry.row_capacity(), 2051);
  EXPECT_EQ(geometry.query_heads(), 24);
  EXPECT_EQ(geometry.kv_heads(), 2);
  EXPECT_EQ(geometry.heads_per_kv(), 12);
  EXPECT_EQ(geometry.head_dim(), 256);
  EXPECT_EQ(geometry.value_dim(), 256);
  EXPECT_EQ(geometry.softmax_scale(), 0.0625f);
  EXPECT_EQ(geometry.index_heads(), 4);
  EXPECT_EQ(geometry.index_dim(), 128);
  EXPECT_EQ(geometry.index_rotary_dim(), 64);
  EXPECT_EQ(geometry.inv_freq().size(), 32u);
  EXPECT_TRUE(geometry.rope_axes().empty());
  EXPECT_TRUE(geometry.relu());
  EXPECT_FALSE(geometry.values_alias_keys());
  EXPECT_EQ(geometry.scale_at(), ScaleAt::kAfterSum);
  EXPECT_EQ(geometry.pooling(), Pooling::kMean);
}

TEST(Geometry, WhatIsGivenIsKept) {
  GeometryOptions options;
  options.group_tokens = 1;
  options.budget_tokens = 77;
  options.query_heads = 128;
  options.kv_heads = 1;
  options.head_dim = 576;
  options.value_dim = 512;
  options.values_alias_keys = true;
  options.softmax_scale = 0.1f;
  options.index_rotary_dim = 4;
  options.inv_freq = {1.0f, 0.0f};
  options.rope_axes = {2, 0};
  options.pooling = Pooling::kNone;
  options.relu = false;
  options.scale_at = ScaleAt::kNowhere;
  options.kv_dtype = DType::kF16;
  options.index_dtype = DType::kBf16;
  const Geometry geometry = admit_ok(options);
  EXPECT_EQ(geometry.row_capacity(), 77);
  EXPECT_EQ(geometry.value_dim(), 512);
  EXPECT_EQ(geometry.softmax_scale(), 0.1f);
  EXPECT_EQ(std::vector<float>(geometry.inv_freq().begin(), geometry.inv_freq().end()), options.inv_freq);
  EXPECT_EQ(geometry.rope_axes()[0], 2);
  EXPECT_EQ(geometry.kv_dtype(), DType::kF16);
  EXPECT_EQ(geometry.index_dtype(), DType::kBf16);
  EXPECT_FALSE(geometry.relu());
}

TEST(Geometry, InverseFrequenciesFromThetaTakeTwoRoundings) {
  const Geometry geometry = admit_ok({});
  int other_if_rounded_once = 0;
  for (std::size_t pair = 0; pair < 32; ++pair) {
    const long double power = std::pow(1e7L, static_cast<long double>(pair) / 32.0L);
    EXPECT_EQ(geometry.inv_freq()[pair], 1.0f / static_cast<float>(power)) << pair;
    other_if_rounded_once += geometry.inv_freq()[pair] != static_cast<float>(1.0L / power) ? 1 : 0;
  }
  EXPECT_GT(other_if_rounded_once, 5);
}

TEST(Geometry, NoRotationNeedsNoTheta) {
  GeometryOptions options;
  options.index_rotary_dim = 0;
  options.rope_theta = -1.0;
  EXPECT_TRUE(admit_ok(options).inv_freq().empty());
}

TEST(Geometry, WidthsFollowTheContract) {
  const Geometry geometry = admit_ok({});
  for (std::int64_t n = 0; n <= 10000; ++n) {
    ASSERT_EQ(geometry.row_width(n), n <= 2051 ? n : 2048 + n % 4) << n;
    ASSERT_EQ(geometry.groups(n) * 4 + geometry.tail_tokens(n), n);
    ASSERT_LE(geometry.row_width(n), geometry.row_capacity());
  }
  for (const std::int64_t n : {Geometry::kPositions, std::int64_t{1} << 32, kMax}) {
    EXPECT_EQ(geometry.row_width(n), 2048 + n % 4);
    EXPECT_EQ(geometry.groups(n), n / 4);
  }
}

TEST(GeometryRefuses, EveryExtentThatIsZeroNegativeOrTooLargeByName) {
  using Field = std::int64_t GeometryOptions::*;
  const std::pair<Field, std::string_view> fields[] = {
      {&GeometryOptions::group_tokens, "group_tokens"}, {&GeometryOptions::budget_tokens, "budget_tokens"},
      {&GeometryOptions::query_heads, "query_heads"},   {&GeometryOptions::kv_heads, "kv_heads"},
      {&GeometryOptions::head_dim, "head_dim"},         {&GeometryOptions::value_dim, "value_dim"},
      {&GeometryOptions::index_heads, "index_heads"},   {&GeometryOptions::index_dim, "index_dim"}};
  for (const auto& [field, name] : fields) {
    for (const std::int64_t size : {std::int64_t{0}, std::int64_t{-1}, kMin, Geometry::kMaxExtent + 1,
                                    std::int64_t{1} << 31, std::int64_t{1} << 32, kMax}) {
      if (name == "value_dim" && size == 0) continue;  // head_dim
      refuse([&, field = field](GeometryOptions& o) { o.*field = size; }, name,
             std::to_string(size) + " is not in 1..16777216");
    }
  }
}

TEST(GeometryRefuses, SizesThatDoNotFitOneAnother) {
  refuse([](GeometryOptions& o) { o.budget_tokens = 2050; }, "budget_tokens",
         "2050 is not a multiple of group_tokens 4");
  refuse([](GeometryOptions& o) { o.group_tokens = 4096; }, "budget_tokens",
         "2048 is not a multiple of group_tokens 4096");
  refuse([](GeometryOptions& o) { o.kv_heads = 5; }, "query_heads", "24 is not a multiple of kv_heads 5");
  refuse([](GeometryOptions& o) { o.kv_heads = 48; }, "query_heads", "24 is not a multiple of kv_heads 48");
  refuse([](GeometryOptions& o) { o.values_alias_keys = true, o.value_dim = 257; }, "value_dim",
         "257 aliases keys of only 256");
  refuse([](GeometryOptions& o) { o.pooling = Pooling::kNone; }, "group_tokens", "4 with pooling none");
}

TEST(GeometryRefuses, ForcedGroupsAndSelectionsThatDoNotFit) {
  refuse([](GeometryOptions& o) { o.forced_first = -1; }, "forced_first", "-1 is not in 0..");
  refuse([](GeometryOptions& o) { o.forced_newest = kMax; }, "forced_newest", "is not in 0..");
  refuse([](GeometryOptions& o) { o.forced_first = 512, o.forced_newest = 1; }, "forced_newest",
         "513 groups forced inside a budget of 512");
  refuse([](GeometryOptions& o) { o.tail = Tail::kGroup; }, "forced_newest", "a partial group has no pooled key");
  refuse([](GeometryOptions& o) { o.tail = static_cast<Tail>(2); }, "tail", "2 is no tail");
  refuse([](GeometryOptions& o) { o.selections = 0; }, "selections", "0 does not divide the 2 kv_heads");
  refuse([](GeometryOptions& o) { o.selections = 4; }, "selections", "4 does not divide the 2 kv_heads");
  refuse([](GeometryOptions& o) { o.selections = 2, o.index_heads = 3; }, "selections",
         "2 does not divide the 3 index_heads");
  refuse(
      [](GeometryOptions& o) {
        o.group_tokens = 1 << 20, o.budget_tokens = 1 << 20, o.forced_newest = 1 << 20, o.forced_outside = true;
      },
      "forced_newest", "pass the positions");
}

// minimax_m3_vl: blocks of 128, 16 of them, the newest forced.
TEST(Geometry, APartialNewestGroupCountsWithTailGroup) {
  GeometryOptions options;
  options.pooling = Pooling::kUnitMax;
  options.group_tokens = 128;
  options.tail = Tail::kGroup;
  options.forced_newest = 1;
  const Geometry geometry = admit_ok(options);
  EXPECT_EQ(geometry.row_capacity(), 2048);
  EXPECT_EQ(geometry.groups(2048), 16);
  EXPECT_EQ(geometry.groups(2049), 17);
  EXPECT_EQ(geometry.tail_tokens(2049), 0);
  EXPECT_EQ(geometry.missing_tokens(2049), 127);
  EXPECT_EQ(geometry.row_width(2048), 2048);
  EXPECT_EQ(geometry.row_width(2049), 15 * 128 + 1);
  EXPECT_EQ(geometry.row_width(2176), 2048);
  EXPECT_EQ(geometry.index_keys(2049), 2049);
}

TEST(Geometry, GroupsForcedOutsideOfTheBudgetWidenTheRow) {
  GeometryOptions options;
  options.group_tokens = 4;
  options.budget_tokens = 16;
  options.forced_first = 1;
  options.forced_newest = 2;
  EXPECT_EQ(admit_ok(options).row_capacity(), 19);
  options.forced_outside = true;
  const Geometry geometry = admit_ok(options);
  EXPECT_EQ(geometry.row_groups(), 7);
  EXPECT_EQ(geometry.row_capacity(), 31);
  EXPECT_EQ(geometry.row_width(31), 31);
  EXPECT_EQ(geometry.row_width(33), 29);
}

TEST(GeometryRefuses, OptionsThatAreNone) {
  refuse([](GeometryOptions& o) { o.pooling = static_cast<Pooling>(3); }, "pooling", "3 is no pooling");
  refuse([](GeometryOptions& o) { o.scale_at = static_cast<ScaleAt>(4); }, "scale_at", "4 is no place");
  for (const DType dtype : {DType::kI32, DType::kI64, static_cast<DType>(77)}) {
    refuse([&](GeometryOptions& o) { o.kv_dtype = dtype; }, "kv_dtype", "is not a float type");
    refuse([&](GeometryOptions& o) { o.index_dtype = dtype; }, "index_dtype", "is not a float type");
  }
}

TEST(GeometryRefuses, RotationsThatDoNotFit) {
  for (const std::int64_t rotary : {std::int64_t{-2}, std::int64_t{63}, std::int64_t{130}, kMax, kMin}) {
    refuse([&](GeometryOptions& o) { o.index_rotary_dim = rotary; }, "index_rotary_dim",
           "is not an even number in 0..index_dim 128");
  }
  for (const double theta : {0.0, 0.5, -1e7, std::nan(""), std::numeric_limits<double>::infinity(), 0x1p+128, 1e300}) {
    refuse([&](GeometryOptions& o) { o.rope_theta = theta; }, "rope_theta", "is not a number from 1");
  }
  refuse([](GeometryOptions& o) { o.inv_freq.assign(31, 0.5f); }, "inv_freq", "31 entries for 32 pairs");
  refuse([](GeometryOptions& o) { o.index_rotary_dim = 0, o.inv_freq = {0.5f}; }, "inv_freq", "1 entries for 0 pairs");
  refuse([](GeometryOptions& o) { o.rope_axes.assign(33, 0); }, "rope_axes", "33 entries for 32 pairs");
  for (const float bad : {test::kNaN, test::kInfinity, -0.5f, 1.5f}) {
    refuse([&](GeometryOptions& o) { o.inv_freq.assign(32, 0.5f), o.inv_freq[7] = bad; }, "inv_freq", "entry 7 is", 7);
  }
  refuse([](GeometryOptions& o) { o.rope_axes.assign(32, 2), o.rope_axes[31] = 3; }, "rope_axes", "entry 31 is 3", 31);
}

TEST(GeometryRefuses, ScalarsThatAreNotFiniteAndPositive) {
  for (const float bad : {0.0f, -1e-6f, test::kNaN, test::kInfinity, -test::kInfinity}) {
    refuse([&](GeometryOptions& o) { o.norm_eps = bad; }, "norm_eps", "is not finite and positive");
    refuse([&](GeometryOptions& o) { o.softmax_scale = bad; }, "softmax_scale", "is not finite and positive");
  }
}

// The bytes of 2^31 positions of all heads must fit 64 bits: 2^31 x 4 bytes leave 2^30 elements for a token.
TEST(GeometryRefuses, TokensWhoseBytesPassSixtyFourBits) {
  GeometryOptions options;
  options.query_heads = options.kv_heads = std::int64_t{1} << 14;
  options.head_dim = std::int64_t{1} << 15;  // keys and values: twice 2^29 elements, exactly 2^63 bytes
  expect_refused(Geometry::admit(options).status(), Code::kOverflow, "geometry", {}, "do not fit 64-bit sizes");
  options.head_dim -= 1;
  EXPECT_TRUE(Geometry::admit(options).ok());
  options.query_heads = options.kv_heads = options.head_dim = Geometry::kMaxExtent;  // 2^48 elements: wraps to 0 bytes
  expect_refused(Geometry::admit(options).status(), Code::kOverflow, "geometry", {}, "do not fit 64-bit sizes");
}

TEST(CheckRun, AdmitsEveryRunOfPositions) {
  const Geometry geometry = admit_ok({});
  for (const VisibleRun run :
       {VisibleRun{0, 0}, VisibleRun{0, Geometry::kPositions}, VisibleRun{Geometry::kPositions - 1, 1},
        VisibleRun{Geometry::kPositions - 1, 0}, VisibleRun{1000003, 262144}}) {
    EXPECT_TRUE(geometry.check_run(run).ok()) << run.anchor << " " << run.tokens;
  }
}

TEST(CheckRun, RefusesByArgumentAndRow) {
  const Geometry geometry = admit_ok({});
  const auto refused = [&](VisibleRun run, std::string_view argument, std::string_view words) {
    expect_refused(geometry.check_run(run, 9), Code::kInvalidArgument, argument, {9, -1}, words);
    expect_refused(geometry.check_run(run), Code::kInvalidArgument, argument, {-1, -1}, words);
  };
  for (const std::int64_t anchor : {std::int64_t{-1}, kMin, Geometry::kPositions, std::int64_t{1} << 32, kMax}) {
    refused({anchor, 1}, "anchor", std::to_string(anchor) + " is not in 0..2147483647");
  }
  refused({0, -1}, "visible", "-1 tokens is negative");
  refused({0, kMin}, "visible", "is negative");
  refused({0, Geometry::kPositions + 1}, "visible",
          "2147483649 tokens from anchor 0 pass the last position 2147483647");
  refused({Geometry::kPositions - 1, 2}, "visible", "pass the last position");
  refused({5, kMax}, "visible", "pass the last position");  // anchor + tokens would wrap
}

TEST(Geometry, ItsOptionsAdmittedAgainGiveAnEqualOne) {
  GeometryOptions options;
  options.rope_axes.assign(32, 1);
  options.scale_at = ScaleAt::kBeforeRelu;
  const Geometry geometry = *Geometry::admit(options);
  EXPECT_EQ(*Geometry::admit(geometry.options()), geometry);
  EXPECT_EQ(geometry.options().value_dim, geometry.head_dim());
  EXPECT_EQ(geometry.options().inv_freq.size(), 32u);
  options.value_dim = options.head_dim;
  EXPECT_EQ(*Geometry::admit(options), geometry) << "a default that is written out";
}

TEST(Geometry, GeometriesAreEqualInEveryOptionOrDiffer) {
  const Geometry usual = *Geometry::admit({});
  int differ = 0;
  const auto differs = [&](auto change) {
    GeometryOptions options;
    change(options);
    const auto other = Geometry::admit(std::move(options));
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_NE(*other, usual);
    ++differ;
  };
  differs([](GeometryOptions& o) { o.budget_tokens = 4096; });
  differs([](GeometryOptions& o) { o.query_heads = 12; });
  differs([](GeometryOptions& o) { o.value_dim = 128; });
  differs([](GeometryOptions& o) { o.values_alias_keys = true; });
  differs([](GeometryOptions& o) { o.softmax_scale = 0.5f; });
  differs([](GeometryOptions& o) { o.rope_theta = 1e6; });
  differs([](GeometryOptions& o) { o.rope_axes.assign(32, 0); });
  differs([](GeometryOptions& o) { o.norm_eps = 1e-5f; });
  differs([](GeometryOptions& o) { o.relu = false; });
  differs([](GeometryOptions& o) { o.scale_at = ScaleAt::kNowhere; });
  differs([](GeometryOptions& o) { o.kv_dtype = DType::kBf16; });
  differs([](GeometryOptions& o) { o.index_dtype = DType::kF16; });
  EXPECT_EQ(differ, 12);
}

TEST(Geometry, EveryNameIsThatOfItsNumberAndOfNoOther) {
  for (const std::string_view name : kScaleAtNames) EXPECT_EQ(scale_at_name(*scale_at_named(name)), name);
  for (const std::string_view name : kPoolingNames) EXPECT_EQ(pooling_name(*pooling_named(name)), name);
  EXPECT_EQ(scale_at_named("before_relu"), ScaleAt::kBeforeRelu);
  EXPECT_EQ(pooling_named("none"), Pooling::kNone);
  EXPECT_FALSE(scale_at_named("").has_value());
  EXPECT_FALSE(pooling_named("Mean").has_value());
}

}  // namespace
}  // namespace seriatim
