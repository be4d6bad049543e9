// Finite inputs whose logits pass f32 or outputs their dtype: the first head is named, its results are NaN, all others
// are right.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "base/half.hpp"
#include "support/attend.hpp"

namespace seriatim {
namespace {

using namespace testing;

bool all_nan(const Attended& result, std::int64_t head) {
  const std::int64_t dims = result.output.elements() / result.output.view().shape[0];
  for (std::int64_t i = 0; i < dims; ++i) {
    if (!std::isnan(result.output.get(head * dims + i))) return false;
  }
  return std::isnan(result.lse[static_cast<std::size_t>(head)]);
}

// Heads in `bad` are NaN and named, the others equal those of `calm`, bit for bit.
void expect_overflow(const Attended& got, const Attended& calm, std::initializer_list<std::int64_t> bad) {
  EXPECT_TRUE(fails_with(got.status, Code::kOverflow, "output", -1, *bad.begin()));
  EXPECT_NE(got.status.message().find("head " + std::to_string(*bad.begin())), std::string::npos)
      << got.status.message();
  for (std::int64_t head = 0; head < got.output.view().shape[0]; ++head) {
    if (std::find(bad.begin(), bad.end(), head) != bad.end()) {
      EXPECT_TRUE(all_nan(got, head)) << head;
    } else {
      EXPECT_TRUE(same_bits(head_bytes(got.output, head), head_bytes(calm.output, head))) << head;
      EXPECT_EQ(got.lse[static_cast<std::size_t>(head)], calm.lse[static_cast<std::size_t>(head)]) << head;
    }
  }
}

TEST(AttendOverflow, OfALogitIsReportedWithItsFirstHead) {
  for (const DType output : {DType::kF32, DType::kBf16, DType::kF16}) {
    AttendCase attend(small_attention(), 300, 51);
    attend.output_dtype = output;
    for (const std::int64_t head : {1, 3}) {
      for (std::int64_t i = 0; i < 8; ++i) attend.query.set(head * 8 + i, i == 0 ? 3e38f : 0.0f);
    }
    for (std::int64_t row = 0; row < 600; ++row) attend.keys.set(row * 8, 1.0f);  // dim 0 of both kv heads
    const Attended quiet = attend.run();                                          // large, but within f32
    ASSERT_TRUE(quiet.status.ok()) << quiet.status.message();
    attend.keys.set(290 * 16, 4.0f);
    attend.keys.set(290 * 16 + 8, 4.0f);
    AttendCase others = attend;
    for (const std::int64_t head : {1, 3}) others.query.set(head * 8, 1.0f);
    const Attended right = others.run();
    ASSERT_TRUE(right.status.ok()) << right.status.message();
    expect_overflow(attend.run(), right, {1, 3});
  }
}

// A weight of 0 would hide it.
TEST(AttendOverflow, ToMinusInfinityIsAnOverflowToo) {
  AttendCase attend(small_attention(), 10, 52);
  for (std::int64_t t = 0; t < 10; ++t) attend.keys.set(t * 16 + 8, 0.0f);  // kv head 1, dim 0
  attend.query.set(2 * 8, -3e38f);
  attend.query.set(3 * 8, 0.0f);
  const Attended quiet = attend.run();
  ASSERT_TRUE(quiet.status.ok()) << quiet.status.message();
  attend.keys.set(9 * 16 + 8, 3e38f);
  AttendCase others = attend;
  others.query.set(2 * 8, 0.0f);
  const Attended right = others.run();
  ASSERT_TRUE(right.status.ok());
  expect_overflow(attend.run(), right, {2});
}

TEST(AttendOverflow, OfAnOutputSumIsReported) {
  AttendCase attend(small_attention(), 20, 53, 0.01f);
  const Attended calm = attend.run();
  for (std::int64_t t = 0; t < 20; ++t) attend.values.set((t * 2 + 1) * 8 + 6, 3e38f);  // kv head 1
  expect_overflow(attend.run(), calm, {2, 3});
}

TEST(AttendOverflow, InASplitThatALaterOneOutweighsIsStillReported) {
  AttendCase attend(small_attention(), 200, 54, 0.01f);
  const Attended calm = attend.run();
  for (std::int64_t t = 0; t < 128; ++t) attend.values.set(t * 16, 3e38f);  // kv head 0
  for (std::int64_t head = 0; head < 2; ++head) attend.query.set(head * 8, 1.0f);
  attend.keys.set(150 * 16, 2000.0f);
  expect_overflow(attend.run(), calm, {0, 1});
}

TEST(AttendOverflow, LargeValuesThatFitAreRight) {
  AttendCase attend(small_attention(), 1, 55);
  for (std::int64_t i = 0; i < 16; ++i) attend.values.set(i, 3.4e38f);
  const Attended result = attend.run();
  ASSERT_TRUE(result.status.ok()) << result.status.message();
  EXPECT_EQ(result.output.get(0), 3.4e38f);
}

// 65,519.996 is stored as 65,504, the largest f16; the next f32 above would be stored as infinity.
TEST(AttendOverflow, OfTheDtypeThatAnOutputIsStoredAsIsReported) {
  for (const auto& [output, largest] : {std::pair(DType::kF16, 65504.0f), std::pair(DType::kBf16, 0x1.fep127f)}) {
    for (const float sign : {1.0f, -1.0f}) {
      AttendCase attend(small_attention(), 1, 57);
      attend.output_dtype = output;
      const float fits = largest_before_overflow(output);
      attend.values.set(15, sign * fits);  // kv head 1
      const Attended right = attend.run();
      ASSERT_TRUE(right.status.ok()) << right.status.message();
      EXPECT_EQ(right.output.get(2 * 8 + 7), sign * largest);
      EXPECT_TRUE(same_result(attend.oracle(), right));
      attend.values.set(15, sign * std::nextafter(fits, std::numeric_limits<float>::max()));
      expect_overflow(attend.run(), right, {2, 3});
      expect_overflow(attend.oracle(), right, {2, 3});
      attend.output_dtype = DType::kF32;
      EXPECT_TRUE(attend.run().status.ok()) << "it is only f32 that can hold it";
    }
  }
}

TEST(AttendOverflow, TheOracleReportsTheSame) {
  AttendCase attend(small_attention(), 20, 56, 0.01f);
  for (std::int64_t t = 0; t < 20; ++t) attend.values.set((t * 2 + 1) * 8 + 6, 3e38f);
  const Attended ours = attend.run();
  const Attended oracle = attend.oracle();
  EXPECT_TRUE(fails_with(oracle.status, Code::kOverflow, "output", -1, 2));
  EXPECT_TRUE(same_bits(head_bytes(ours.output, 0), head_bytes(oracle.output, 0)));
  EXPECT_TRUE(all_nan(oracle, 3));
}

}  // namespace
}  // namespace seriatim
