// Transformers' own layer before the judge: the committed captures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <span>

#include "check/row_judge.hpp"
#include "seriatim/check.hpp"
#include "seriatim/replay.hpp"

namespace seriatim {
namespace {

std::vector<std::string> captures() {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::directory_iterator(SERIATIM_FIXTURES_DIR)) {
    if (file.path().extension() == ".safetensors") paths.push_back(file.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Captures, TransformersOwnRowsBreakTiesAloneAndAreNearOtherwise) {
  ASSERT_GE(captures().size(), 4u);
  for (const std::string& path : captures()) {
    auto capture = Capture::open(path);
    ASSERT_TRUE(capture.ok());
    const bool f32 = capture->geometry.index_dtype() == DType::kF32;
    const auto judge = judge_with(*std::move(capture));
    ASSERT_TRUE(judge.ok()) << judge.status().message();
    const auto rows = (*judge)->rows(nullptr);
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    CheckOptions options;
    options.margin = f32 ? 1e-5 : 1e-2;
    options.against = judge->get();
    const auto report = check(**rows, options);
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (std::size_t i = 0; i < kPromises; ++i) {
      const auto promise = static_cast<Promise>(i);
      if (promise == Promise::kTie) continue;
      EXPECT_EQ(report->of(promise).faults, 0) << path << ": " << promise_name(promise);
    }
    EXPECT_GT(report->of(Promise::kMembership).judged, 0) << path;
    ASSERT_TRUE(report->arithmetic.has_value());
    EXPECT_EQ(report->arithmetic->rows, report->rows);
    EXPECT_LE(report->arithmetic->relative, report->arithmetic->bound);
    EXPECT_LT(report->arithmetic->own_f64, 1e-6);
  }
}

// Attention over latents: finished index keys of one token each, head weights of either sign, values that are the
// leading dims of the keys. What `seriatim.record` wrote of a small DeepSeek-V3.2.
class Recorded : public testing::Test {
 protected:
  static std::string path(const char* name) { return std::string(SERIATIM_FIXTURES_DIR) + "/recorded/" + name; }
  static std::unique_ptr<JudgedCapture> judge() {
    auto capture = Capture::open(path("dsa_f32.safetensors"));
    EXPECT_TRUE(capture.ok()) << capture.status().message();
    auto judge = judge_with(*std::move(capture));
    EXPECT_TRUE(judge.ok()) << judge.status().message();
    return *std::move(judge);
  }
  static void expect_right_but_for_order(const CheckReport& report, std::int64_t rows) {
    EXPECT_EQ(report.rows, rows);
    for (std::size_t i = 0; i < kPromises; ++i) {
      const auto promise = static_cast<Promise>(i);
      if (promise == Promise::kOrder) continue;
      EXPECT_EQ(report.of(promise).faults, 0) << promise_name(promise);
    }
    EXPECT_EQ(report.of(Promise::kDense).judged, 48);  // the budget
    EXPECT_EQ(report.of(Promise::kMembership).judged, rows - 48);
  }
};

TEST_F(Recorded, ALatentLayersCaptureReplaysAndKeepsEveryPromise) {
  const auto judge = Recorded::judge();
  const Capture& capture = judge->capture();
  const Geometry& g = capture.geometry;
  ASSERT_EQ(g.group_tokens(), 1);
  ASSERT_EQ(g.pooling(), Pooling::kNone);
  ASSERT_TRUE(g.values_alias_keys());
  const auto weights = std::span(reinterpret_cast<const float*>(capture.index_head_weights.data),
                                 static_cast<std::size_t>(capture.index_head_weights.shape[0] * g.index_heads()));
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(), [](float w) { return w < 0.0f; }));
  EXPECT_TRUE(std::any_of(weights.begin(), weights.end(), [](float w) { return w > 0.0f; }));

  const auto done = replay(capture);
  ASSERT_TRUE(done.ok()) << done.status().message();
  EXPECT_TRUE(done->agrees());
  EXPECT_GT(done->groups_dropped, 1000);
  EXPECT_GE(done->count(Agreement::kExact), done->queries - 2);
  ASSERT_TRUE(done->output_compared);
  EXPECT_LT(done->difference_expected_rows, 2e-6);

  const auto rows = judge->rows(nullptr);
  ASSERT_TRUE(rows.ok());
  CheckOptions options;
  options.margin = 1e-5;
  options.against = judge.get();
  const auto report = check(**rows, options);
  ASSERT_TRUE(report.ok());
  expect_right_but_for_order(*report, done->queries);
  EXPECT_TRUE(report->conforms());
  ASSERT_TRUE(report->arithmetic.has_value());
  EXPECT_EQ(report->arithmetic->rows, report->rows);
}

TEST_F(Recorded, ADumpIsJudgedByItsOwnScoresAndByOurs) {
  const auto judge = Recorded::judge();
  const auto dump = open_selection(path("dsa_f32_dump.safetensors"));
  ASSERT_TRUE(dump.ok()) << dump.status().message();
  const auto rescored = judge->rows(dump->get());
  ASSERT_TRUE(rescored.ok()) << rescored.status().message();
  CheckOptions options;
  options.margin = 1e-5;
  const std::int64_t rows = std::ssize(judge->capture().query_positions);
  for (const Selection* selection : {dump->get(), rescored->get()}) {
    options.rule = RowRule::kSet;
    const auto set = check(*selection, options);
    ASSERT_TRUE(set.ok());
    expect_right_but_for_order(*set, rows);
    EXPECT_TRUE(set->conforms());
    options.rule = RowRule::kCanonical;  // the rows stand by score
    const auto canonical = check(*selection, options);
    ASSERT_TRUE(canonical.ok());
    expect_right_but_for_order(*canonical, rows);
    EXPECT_GT(canonical->of(Promise::kOrder).faults, rows / 2);
  }
}

// A capture whose rows come from us, with a fault in one output.
TEST(Captures, AWrongOutputIsArithmeticAndNothingElse) {
  for (const std::string& path : captures()) {
    auto capture = Capture::open(path);
    ASSERT_TRUE(capture.ok());
    const auto ours = replay(*capture);
    ASSERT_TRUE(ours.ok());
    std::vector<std::int64_t> visible;
    for (const std::int64_t position : capture->query_positions) visible.push_back(position - capture->anchor + 1);
    std::vector<float> output = ours->output;
    const Geometry g = capture->geometry;
    Selection::About about;
    about.group_tokens = g.group_tokens();
    about.budget_tokens = g.budget_tokens();
    about.anchor = capture->anchor;
    const auto judge = judge_with(*std::move(capture));
    ASSERT_TRUE(judge.ok());
    for (const bool wrong : {false, true}) {
      if (wrong) output[output.size() / 2] += 0.25f * static_cast<float>((*judge)->largest_value());
      const auto selection =
          view_selection({dense_view(ours->rows.data(), DType::kI32, {ours->queries, ours->row_capacity}),
                          dense_view(static_cast<const void*>(visible.data()), DType::kI64, {ours->queries}),
                          {},
                          dense_view(static_cast<const void*>(output.data()), DType::kF32,
                                     {ours->queries, g.query_heads(), g.value_dim()})},
                         about);
      ASSERT_TRUE(selection.ok()) << selection.status().message();
      const auto rows = (*judge)->rows(selection->get());
      ASSERT_TRUE(rows.ok()) << rows.status().message();
      CheckOptions options;
      options.against = judge->get();
      const auto report = check(**rows, options);
      ASSERT_TRUE(report.ok());
      ASSERT_EQ(report->findings.size(), wrong ? 1u : 0u);
      if (!wrong) {
        EXPECT_EQ(report->arithmetic->ulp, 0);
        continue;
      }
      EXPECT_EQ(report->findings[0].promise, Promise::kArithmetic);
      EXPECT_EQ(report->findings[0].row, report->rows / 2);
      EXPECT_GE(report->arithmetic->ulp, 32);  // a quarter of the largest |value|, in bf16's eight bits
    }
  }
}

}  // namespace
}  // namespace seriatim
