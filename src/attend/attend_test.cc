// What attention computes: against the dense oracle bit for bit, against f64 within a stated bound, and by hand.
#include "seriatim/attend.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/exp.hpp"
#include "base/log.hpp"
#include "support/attend.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Attend, EqualsTheDenseOracleOverAnyRow) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    GeometryOptions options = small_attention();
    options.kv_dtype = dtype;
    AttendCase attend(options, 700, 11);
    EXPECT_TRUE(same_result(attend.run(), attend.oracle())) << dtype_name(dtype) << ", every token";
    attend.keep_only([](std::int64_t t) { return t % 7 == 2 || t > 600; });
    EXPECT_TRUE(same_result(attend.run(), attend.oracle())) << dtype_name(dtype) << ", some";
    attend.keep_only([](std::int64_t t) { return t == 303; });
    EXPECT_TRUE(same_result(attend.run(), attend.oracle())) << dtype_name(dtype) << ", one";
  }
}

TEST(Attend, AnEmptyRowGivesZerosAndMinusInfinity) {
  AttendCase attend(small_attention(), 3, 12);
  attend.row.clear();
  const Attended result = attend.run();
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  for (std::int64_t i = 0; i < result.output.elements(); ++i)
    EXPECT_EQ(std::bit_cast<std::uint32_t>(result.output.get(i)), 0u) << i;
  for (const float lse : result.lse) EXPECT_EQ(lse, -kInfinity);
}

TEST(Attend, AQueryThatSeesNothingMayAskALayerThatHoldsNothing) {
  AttendCase attend(small_attention(), 0, 12);
  const Attended result = attend.run();
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.output.get(0), 0.0f);
  EXPECT_EQ(result.lse[0], -kInfinity);
}

TEST(Attend, QueryHeadsReadTheirOwnKvHead) {
  GeometryOptions options = small_attention();
  options.query_heads = 6;
  options.kv_heads = 3;
  AttendCase attend(options, 20, 13);
  // Values that name their kv head: the softmax's mean of a constant is that constant.
  for (std::int64_t t = 0; t < 20; ++t) {
    for (std::int64_t h = 0; h < 3; ++h) {
      for (std::int64_t i = 0; i < 8; ++i) attend.values.set((t * 3 + h) * 8 + i, static_cast<float>(h + 1));
    }
  }
  const Attended result = attend.run();
  ASSERT_TRUE(result.status.ok());
  for (std::int64_t head = 0; head < 6; ++head) {
    EXPECT_NEAR(result.output.get(head * 8), static_cast<float>(head / 2 + 1), 1e-6f) << "query head " << head;
  }
}

TEST(Attend, AKvHeadChangesOnlyItsOwnQueryHeads) {
  AttendCase attend(small_attention(), 40, 14);
  const Attended before = attend.run();
  for (std::int64_t t = 0; t < 40; ++t) attend.keys.set((t * 2 + 1) * 8, 3.0f);
  const Attended after = attend.run();
  for (std::int64_t head = 0; head < 4; ++head) {
    const bool same = static_cast<bool>(same_bits(head_bytes(after.output, head), head_bytes(before.output, head)));
    EXPECT_EQ(same, head < 2) << "query head " << head;
  }
}

TEST(Attend, ValuesMayBeNarrowerOrWiderThanKeys) {
  for (const std::int64_t value_dim : {1, 3, 8, 13}) {
    GeometryOptions options = small_attention();
    options.value_dim = value_dim;
    AttendCase attend(options, 300, 15);
    EXPECT_TRUE(same_result(attend.run(), attend.oracle())) << value_dim << " dims";
    EXPECT_EQ(attend.run().output.elements(), 4 * value_dim);
  }
}

TEST(Attend, ValuesThatAliasKeysEqualACopyOfThem) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    GeometryOptions options = small_attention();
    options.kv_dtype = dtype;
    options.value_dim = 5;
    AttendCase copied(options, 200, 16);
    options.values_alias_keys = true;
    AttendCase aliased(options, 200, 16);
    for (std::int64_t row = 0; row < 400; ++row) {
      for (std::int64_t i = 0; i < 5; ++i) copied.values.set(row * 5 + i, copied.keys.get(row * 8 + i));
    }
    EXPECT_TRUE(same_result(aliased.run(), copied.run()));
    EXPECT_TRUE(same_result(aliased.run(), aliased.oracle()));
  }
}

TEST(Attend, AGivenScaleIsUsedAndTheDefaultIsOneOverTheRoot) {
  GeometryOptions options = small_attention();
  AttendCase standard(options, 50, 17);
  options.softmax_scale = static_cast<float>(1.0 / std::sqrt(8.0));
  EXPECT_TRUE(same_result(AttendCase(options, 50, 17).run(), standard.run()));
  options.softmax_scale = 0.5f;
  AttendCase scaled(options, 50, 17);
  EXPECT_TRUE(same_result(scaled.run(), scaled.oracle()));
  EXPECT_FALSE(same_result(scaled.run(), standard.run()));
}

TEST(Attend, HalfOutputsRoundOnce) {
  for (const DType dtype : {DType::kBf16, DType::kF16}) {
    for (const DType storage : {DType::kF32, dtype}) {
      GeometryOptions options = small_attention();
      options.kv_dtype = storage;
      AttendCase attend(options, 500, 18);
      attend.output_dtype = DType::kF32;
      const Attended exact = attend.run();
      attend.output_dtype = dtype;
      const Attended rounded = attend.run();
      ASSERT_TRUE(rounded.status.ok());
      HostTensor once(dtype, {4, 8});
      for (std::int64_t i = 0; i < once.elements(); ++i) once.set(i, exact.output.get(i));
      EXPECT_TRUE(same_bits(rounded.output.bytes(), once.bytes()))
          << dtype_name(dtype) << " of " << dtype_name(storage);
      EXPECT_TRUE(same_bits(rounded.lse, exact.lse)) << "the log-sum-exp stays f32";
    }
  }
}

TEST(Attend, TheAnchorMovesNothing) {
  AttendCase attend(small_attention(), 150, 19);
  attend.keep_only([](std::int64_t t) { return t % 3 != 1; });
  const Attended at_zero = attend.run();
  for (const std::int64_t anchor : {std::int64_t{1}, std::int64_t{1'000'003}, Geometry::kPositions - 150}) {
    attend.move_to(anchor);
    EXPECT_TRUE(same_result(attend.run(), at_zero)) << anchor;
  }
}

TEST(Attend, PagesAndSlotsDoNotShow) {
  AttendCase attend(small_attention(), 150, 20);
  const Attended plain = attend.run();
  for (const std::int64_t page_tokens : {1, 7, 64, 1000}) {
    attend.page_tokens = page_tokens;
    attend.first_slot = page_tokens / 2;
    EXPECT_TRUE(same_result(attend.run(), plain)) << page_tokens;
  }
}

// The bound: errors of the logit (a chain of head_dim), of the differences, of exp (1 ulp), and of the chains and
// folds, counted once for the numerator and once for the denominator.
double relative_bound(const AttendCase& attend, double logit_magnitude, double logit_range) {
  const double u = 0x1p-24;
  const double dim = static_cast<double>(attend.geometry.head_dim());
  const double splits = std::ceil(static_cast<double>(attend.row.size()) / 128.0);
  const double logit = (dim + 2.0) * u * logit_magnitude;
  const double weight = 2.0 * logit + u * logit_range + 2.0 * u;
  return 1.01 * (2.0 * (weight + 128.0 * u + splits * (5.0 * u + u * logit_range)) + u);
}

// Kind of vllm#57815: whatever the order of reduction, the result must stay near the exact one.
TEST(Attend, StaysWithinTheStatedBoundOfF64) {
  for (const float logit_scale : {0.1f, 2.0f, 12.0f}) {
    for (const bool with_sinks : {false, true}) {
      AttendCase attend(small_attention(), 700, 21, logit_scale);
      attend.keep_only([](std::int64_t t) { return t % 4 != 3; });
      if (with_sinks) attend.sinks = {0.5f, -3.0f, 20.0f, 0.0f};
      std::vector<std::int64_t> tokens(attend.row.begin(), attend.row.end());
      HostTensor magnitudes = attend.values;
      for (std::int64_t i = 0; i < magnitudes.elements(); ++i) magnitudes.set(i, std::fabs(magnitudes.get(i)));
      std::vector<double> exact(32);
      std::vector<double> magnitude(32);
      std::vector<double> lse(4);
      ASSERT_TRUE(attend_f64(attend.geometry, attend.query.view(), {attend.keys.view(), attend.values.view()}, tokens,
                             attend.sinks, exact, lse)
                      .ok());
      ASSERT_TRUE(attend_f64(attend.geometry, attend.query.view(), {attend.keys.view(), magnitudes.view()}, tokens,
                             attend.sinks, magnitude, lse)
                      .ok());
      // No logit's magnitudes exceed |q|_max * 4 * 8 dims * scale, keys being below 4.
      const double logits =
          4.0 * static_cast<double>(logit_scale) * 4.0 * 8.0 * static_cast<double>(attend.geometry.softmax_scale()) +
          20.0;
      const double bound = relative_bound(attend, logits, 2.0 * logits);
      ASSERT_LT(bound, 1e-2);
      const Attended got = attend.run();
      ASSERT_TRUE(got.status.ok());
      for (std::size_t i = 0; i < exact.size(); ++i) {
        EXPECT_LE(std::fabs(static_cast<double>(got.output.get(static_cast<std::int64_t>(i))) - exact[i]),
                  bound * magnitude[i])
            << "element " << i << ", scale " << logit_scale;
      }
      for (std::size_t h = 0; h < lse.size(); ++h) {
        EXPECT_LE(std::fabs(static_cast<double>(got.lse[h]) - lse[h]), bound + 2.0 * 0x1p-24 * std::fabs(lse[h]))
            << "head " << h;
      }
    }
  }
}

}  // namespace
}  // namespace seriatim
