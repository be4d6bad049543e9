#include "seriatim/oracle.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "support/bits.hpp"
#include "support/heap.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

Geometry tiny(GeometryOptions options = {}) {
  options.query_heads = 2;
  options.kv_heads = 1;
  options.head_dim = 2;
  options.index_heads = 2;
  options.index_dim = 4;
  options.index_rotary_dim = 0;
  return *Geometry::admit(options);
}

struct Call {
  explicit Call(const Geometry& admitted, std::int64_t tokens)
      : query(DType::kF32, {2, 2}),
        keys(DType::kF32, {tokens, 1, 2}),
        values(DType::kF32, {tokens, 1, 2}),
        output(DType::kF32, {2, 2}),
        lse(2, -7.0f),
        geometry(admitted) {
    output.fill(-7.0f);
  }
  Status run(std::int64_t visible) {
    return dense_attend(geometry, visible, query.view(), {keys.view(), values.view()}, {}, output.writable(), lse);
  }
  bool untouched() const {
    for (std::int64_t i = 0; i < 4; ++i) {
      if (output.get(i) != -7.0f) return false;
    }
    return lse[0] == -7.0f && lse[1] == -7.0f;
  }

  HostTensor query;
  HostTensor keys;
  HostTensor values;
  HostTensor output;
  std::vector<float> lse;
  const Geometry& geometry;
};

// Kind of transformers#48788: a dense answer whose memory grows until the machine dies. The oracle says no instead.
TEST(DenseOracle, TakesTheCeilingAndRefusesOneMoreBeforeAnythingIsAllocated) {
  const Geometry geometry = tiny();
  Call call(geometry, 2052);
  const HeapUse accepted = heap_use_of([&] { EXPECT_TRUE(call.run(2051).ok()); });
  EXPECT_GE(accepted.bytes, 2051 * 4) << "the counter counts";
  call.output.fill(-7.0f);
  call.lse = {-7.0f, -7.0f};
  for (const std::int64_t visible : {std::int64_t{2052}, std::int64_t{1} << 40, std::int64_t{-1}}) {
    Status status;
    const HeapUse refused = heap_use_of([&] { status = call.run(visible); });
    ASSERT_TRUE(fails_with(status, Code::kInvalidArgument, "visible"));
    EXPECT_NE(status.message().find(std::to_string(visible)), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("2051"), std::string::npos) << status.message();
    const HeapUse bare = heap_use_of([&] { (void)Status::error(status.code(), status.argument(), status.message()); });
    EXPECT_EQ(refused.calls, bare.calls) << "more than the Status was allocated";
    EXPECT_EQ(refused.bytes, bare.bytes);
    EXPECT_TRUE(call.untouched());
  }
}

TEST(DenseOracle, SaysThatTheSystemRefusedMemory) {
  const Geometry geometry = tiny();
  Call call(geometry, 2051);
  const HeapLimit limit(4096);
  EXPECT_EQ(call.run(2051).code(), Code::kOutOfMemory);
  EXPECT_TRUE(call.untouched());
}

TEST(DenseOracle, TheCeilingFollowsTheGeometry) {
  GeometryOptions options;
  options.group_tokens = 7;
  options.budget_tokens = 21;
  const Geometry geometry = tiny(options);
  Call call(geometry, 40);
  EXPECT_TRUE(call.run(27).ok());
  EXPECT_TRUE(fails_with(call.run(28), Code::kInvalidArgument, "visible"));
  std::vector<std::int32_t> row(40, -9);
  EXPECT_EQ(*dense_row(geometry, {5, 27}, row), 27);
  EXPECT_EQ(row[0], 5);
  EXPECT_EQ(row[26], 31);
  EXPECT_EQ(row[27], -9);
  EXPECT_TRUE(fails_with(dense_row(geometry, {5, 28}, row).status(), Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(fails_with(dense_row(geometry, {-5, 3}, row).status(), Code::kInvalidArgument, "anchor"));
  EXPECT_TRUE(
      fails_with(dense_row(geometry, {5, 27}, std::span(row).first(26)).status(), Code::kInvalidArgument, "row"));
}

TEST(DenseOracle, IsCausal) {
  const Geometry geometry = tiny();
  Random random(1);
  Call call(geometry, 9);
  call.query = random_tensor(random, DType::kF32, {2, 2});
  call.keys = random_tensor(random, DType::kF32, {9, 1, 2});
  call.values = random_tensor(random, DType::kF32, {9, 1, 2});
  ASSERT_TRUE(call.run(6).ok());
  const HostTensor before = call.output;
  call.keys.set(12, std::numeric_limits<float>::quiet_NaN());
  call.values.set(17, 3.0f);
  ASSERT_TRUE(call.run(6).ok());
  EXPECT_TRUE(same_bits(call.output.bytes(), before.bytes()));
  EXPECT_TRUE(fails_with(call.run(7), Code::kNotFinite, "keys", 6, 0));
}

TEST(DenseOracle, OneTokenIsItsValueAndNoTokenIsZero) {
  const Geometry geometry = tiny();
  Call call(geometry, 1);
  call.query.fill(0.5f);
  call.keys.set(0, 3.0f);
  call.values.set(0, 1.25f);
  call.values.set(1, -8.0f);
  ASSERT_TRUE(call.run(1).ok());
  EXPECT_EQ(call.output.get(0), 1.25f);
  EXPECT_EQ(call.output.get(3), -8.0f);
  EXPECT_EQ(call.lse[0], 1.5f * geometry.softmax_scale());
  ASSERT_TRUE(call.run(0).ok());
  EXPECT_EQ(call.output.get(0), 0.0f);
  EXPECT_EQ(call.lse[0], -std::numeric_limits<float>::infinity());
}

TEST(DenseOracle, RefusesWhatDoesNotFitAndTouchesNothing) {
  const Geometry geometry = tiny();
  Call call(geometry, 4);
  EXPECT_TRUE(fails_with(call.run(5), Code::kInvalidArgument, "keys"));
  const DenseTokens tokens{call.keys.view(), call.values.view()};
  const HostTensor wide(DType::kF32, {2, 3});
  EXPECT_TRUE(fails_with(dense_attend(geometry, 4, wide.view(), tokens, {}, call.output.writable(), call.lse),
                         Code::kInvalidArgument, "query"));
  EXPECT_TRUE(fails_with(
      dense_attend(geometry, 4, call.query.view(), {call.keys.view(), {}}, {}, call.output.writable(), call.lse),
      Code::kInvalidArgument, "values"));
  HostTensor integers(DType::kI32, {2, 2});
  EXPECT_TRUE(fails_with(dense_attend(geometry, 4, call.query.view(), tokens, {}, integers.writable(), call.lse),
                         Code::kInvalidArgument, "output"));
  EXPECT_TRUE(fails_with(
      dense_attend(geometry, 4, call.query.view(), tokens, {}, call.output.writable(), std::span(call.lse).first(1)),
      Code::kInvalidArgument, "lse"));
  const std::vector<float> sinks{0.0f, std::numeric_limits<float>::infinity()};
  EXPECT_TRUE(fails_with(dense_attend(geometry, 4, call.query.view(), tokens, sinks, call.output.writable(), call.lse),
                         Code::kNotFinite, "sinks"));
  call.values.set(5, std::numeric_limits<float>::infinity());
  EXPECT_TRUE(fails_with(call.run(4), Code::kNotFinite, "values", 2, 1));
  EXPECT_TRUE(call.untouched());
}

TEST(Twins, AttentionIsTheSoftmaxMeanInAnyOrder) {
  const Geometry geometry = tiny();
  Call call(geometry, 3);
  // Scale 1/sqrt(2): with q = (sqrt(2), 0) the logits are the keys' first element.
  call.query.fill(0.0f);
  call.query.set(0, 1.41421356f);
  for (std::int64_t t = 0; t < 3; ++t) {
    call.keys.set(2 * t, static_cast<float>(t));
    call.values.set(2 * t, static_cast<float>(t * t));
    call.values.set(2 * t + 1, 1.0f);
  }
  std::vector<double> output(4);
  std::vector<double> lse(2);
  const std::vector<std::int64_t> row{2, 0};
  ASSERT_TRUE(
      attend_f64(geometry, call.query.view(), {call.keys.view(), call.values.view()}, row, {}, output, lse).ok());
  const double e2 = std::exp(2.0);
  EXPECT_NEAR(output[0], 4.0 * e2 / (e2 + 1.0), 1e-6);
  EXPECT_NEAR(output[1], 1.0, 1e-12);
  EXPECT_NEAR(output[2], 2.0, 1e-12) << "head 1 has no preference";
  EXPECT_NEAR(lse[0], std::log(e2 + 1.0), 1e-6);
  const std::vector<float> sinks{0.0f, -1e30f};
  ASSERT_TRUE(
      attend_f64(geometry, call.query.view(), {call.keys.view(), call.values.view()}, row, sinks, output, lse).ok());
  EXPECT_NEAR(output[0], 4.0 * e2 / (e2 + 2.0), 1e-6) << "a sink of 0 weighs as a token with that logit and no value";
  EXPECT_NEAR(output[2], 2.0, 1e-12);
  const std::vector<std::int64_t> outside{0, 3};
  EXPECT_TRUE(fails_with(
      attend_f64(geometry, call.query.view(), {call.keys.view(), call.values.view()}, outside, {}, output, lse),
      Code::kInvalidArgument, "row", -1, 1));
}

// Kind of mlx-lm#531: the relu stands inside the sum over heads.
TEST(Twins, ScoreTakesTheReluPerHeadThenTheSum) {
  const Geometry geometry = tiny();
  HostTensor query(DType::kF32, {2, 4});
  HostTensor pooled(DType::kF32, {2, 4});
  query.set(0, 1.0f);
  query.set(4, -1.0f);
  pooled.set(0, 6.0f);
  pooled.set(4, -4.0f);
  std::vector<double> scores(2);
  ASSERT_TRUE(score_f64(geometry, query.view(), {}, pooled.view(), scores).ok());
  EXPECT_EQ(scores[0], 3.0) << "(max(6, 0) + max(-6, 0)) / sqrt(4)";
  EXPECT_EQ(scores[1], 2.0);
  HostTensor weights(DType::kF32, {2});
  weights.set(0, -2.0f);
  weights.set(1, 5.0f);
  ASSERT_TRUE(score_f64(geometry, query.view(), weights.view(), pooled.view(), scores).ok());
  EXPECT_EQ(scores[0], -6.0);
  EXPECT_EQ(scores[1], 10.0);
  EXPECT_TRUE(fails_with(score_f64(geometry, query.view(), {}, pooled.view(), std::span(scores).first(1)),
                         Code::kInvalidArgument, "scores"));
}

}  // namespace
}  // namespace seriatim
