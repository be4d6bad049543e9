// plan() scores blocks of queries, divides panels or blocks among workers and probes for NaN: none of it may show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "score/score_ref.hpp"
#include "step/plan_scratch.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Deals the units out in turn, the last one first.
class DealingExecutor final : public Executor {
 public:
  explicit DealingExecutor(int workers) : workers_(workers) {}
  int concurrency() const override { return workers_; }
  void run(std::int64_t units, Task& task) override {
    runs_ += 1;
    most_units_ = std::max(most_units_, units);
    for (std::int64_t unit = units - 1; unit >= 0; --unit) task.run(unit, static_cast<int>(unit % workers_));
  }
  std::int64_t runs() const { return runs_; }
  std::int64_t most_units() const { return most_units_; }

 private:
  int workers_;
  std::int64_t runs_ = 0;
  std::int64_t most_units_ = 0;
};

// Tokens all over the story, in no order.
std::vector<std::int64_t> scattered(std::int64_t count, std::int64_t tokens) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((tokens - 1 + i * 677) % tokens);
  return out;
}

// One query at a time, by the reference kernels.
Answers one_by_one(const Story& story, const LayerView& layer, std::span<const std::int64_t> tokens) {
  Engine engine = engine_for(story.geometry, story.tokens(), serial_executor(), Kernels::reference());
  Answers answers(story.geometry, static_cast<std::int64_t>(tokens.size()));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Asked asked(story, tokens.subspan(i, 1));
    EXPECT_TRUE(
        engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(static_cast<std::int64_t>(i))).ok());
  }
  return answers;
}

TEST(PlanBlocks, EveryBatchSizeWorkerCountAndKernelGivesTheRowsOfSingleQueries) {
  std::int64_t sparse = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Story story(small_path(1, dtype), 1500, 301);  // 94 panels: several parts
    HeldStory held(story, story.tokens());
    const Snapshot snapshot = held.snapshot();
    const auto tokens = scattered(200, story.tokens());
    const Answers expected = one_by_one(story, snapshot.layer(0), tokens);
    for (const std::int32_t count : expected.counts) sparse += count == 8 ? 1 : 0;
    const auto threads = make_executor(3);
    DealingExecutor two(2);
    DealingExecutor nine(9);
    for (const Kernels& kernels : Kernels::available()) {
      for (Executor* executor :
           {&serial_executor(), static_cast<Executor*>(&two), static_cast<Executor*>(&nine), threads.get()}) {
        Engine engine = engine_for(story.geometry, story.tokens(), *executor, kernels);
        for (const std::int64_t batch : {1, 31, 32, 33, 64, 97, 200}) {
          Answers answers(story.geometry, 200);
          const Asked asked(story, std::span(tokens).first(static_cast<std::size_t>(batch)));
          ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
          for (std::int64_t q = 0; q < batch; ++q) {
            ASSERT_TRUE(same_bytes<std::int32_t>(answers.row(q), expected.row(q)))
                << kernels.name() << ", query " << q << " of " << batch;
          }
        }
      }
    }
    EXPECT_GT(two.most_units(), 2) << "blocks were divided";
    EXPECT_GT(nine.most_units(), 2) << "panels were divided";
  }
  EXPECT_GT(sparse, 3 * 150);
}

// A story whose keys and queries can overflow f32: the weights decide whether +inf and -inf meet.
Story overflowing(std::int64_t tokens, std::initializer_list<std::int64_t> bad) {
  GeometryOptions options = small_path(1);
  options.pooling = Pooling::kNone;
  options.scale_at = ScaleAt::kNowhere;
  Story story(options, tokens, 302);
  story.head_weights = HostTensor(DType::kF32, {tokens, 3});
  story.head_weights.fill(1.0f);
  for (std::int64_t h = 0; h < 3; ++h) {
    for (const std::int64_t token : bad) {
      story.index_queries.set((token * 3 + h) * 8, 1e30f);
      story.head_weights.set(token * 3 + 2, -1.0f);
    }
  }
  story.index_keys.set(7 * 8, 1e30f);
  return story;
}

TEST(PlanBlocks, ANanInALaterBlockIsRefusedBeforeAnyRowIsWritten) {
  const Story story = overflowing(150, {130, 90});
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const auto threads = make_executor(3);
  DealingExecutor nine(9);
  std::int64_t refused = 0;
  for (const Kernels& kernels : Kernels::available()) {
    for (Executor* executor : {&serial_executor(), static_cast<Executor*>(&nine), threads.get()}) {
      Engine engine = engine_for(story.geometry, story.tokens(), *executor, kernels);
      Answers answers(story.geometry, 150);
      const Asked asked(story, every_token(0, 150));
      const Status status = engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0));
      EXPECT_TRUE(fails_with(status, Code::kNotANumber, "scores", 90, 7)) << status.message();
      EXPECT_TRUE(answers.rows_untouched());
      ++refused;
      const Asked fine(story, every_token(0, 90));
      EXPECT_TRUE(engine.plan(snapshot.layer(0), fine.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
      EXPECT_EQ(answers.counts[89], 8);
    }
  }
  EXPECT_GE(refused, 3);
}

// The bound that spares the probing must never say wrongly that no NaN can arise.
TEST(PlanBlocks, RefusesExactlyWhereTheScoresOfAnyQueryHoldANan) {
  testing::Random random(303);
  std::int64_t refused = 0;
  std::int64_t planned = 0;
  for (std::uint64_t turn = 0; turn < 300; ++turn) {
    GeometryOptions options = small_path(1);
    options.pooling = Pooling::kNone;
    options.scale_at = ScaleAt::kNowhere;
    options.relu = turn % 2 == 0;
    Story story(options, 40, 304 + turn);
    if (turn % 3 != 0) story.head_weights = random_tensor(random, DType::kF32, {40, 3}, turn % 5 == 0 ? 1e-20f : 1.0f);
    const float query_scale = std::pow(10.0f, 17.0f + 3.0f * random.uniform());
    const float key_scale = std::pow(10.0f, 19.0f + random.uniform());
    for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
      story.index_queries.set(i, story.index_queries.get(i) * query_scale);
    for (std::int64_t i = 0; i < story.index_keys.elements(); ++i)
      story.index_keys.set(i, story.index_keys.get(i) * key_scale);
    HeldStory held(story, 40);
    const Snapshot snapshot = held.snapshot();
    const LayerView layer = snapshot.layer(0);
    std::int64_t first_query = -1;
    std::int64_t first_group = -1;
    for (std::int64_t q = 8; q < 40 && first_query < 0; ++q) {  // up to 8 groups nothing is scored
      std::vector<float> scores(static_cast<std::size_t>(q + 1));
      const ConstTensor weights =
          story.head_weights.elements() > 0 ? row_of(story.head_weights.view(), q) : ConstTensor{};
      score_ref(story.geometry, row_of(story.index_queries.view(), q), weights, layer.pooled_up_to(q), scores);
      const auto nan = std::find_if(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
      if (nan != scores.end()) first_query = q, first_group = nan - scores.begin();
    }
    Engine engine = engine_for(story.geometry, 40);
    Answers answers(story.geometry, 40);
    const Asked asked(story, every_token(0, 40));
    const Status status = engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0));
    if (first_query >= 0) {
      EXPECT_TRUE(fails_with(status, Code::kNotANumber, "scores", first_query, first_group))
          << turn << ": " << status.message();
      EXPECT_TRUE(answers.rows_untouched());
      ++refused;
    } else {
      EXPECT_TRUE(status.ok()) << turn << ": " << status.message();
      ++planned;
    }
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(planned, 50);
}

TEST(PlanBlocks, AreSmallerWhereOneQueryTakesMore) {
  const Geometry qsa = *Geometry::admit(GeometryOptions{});
  EXPECT_EQ(plan_shape(qsa, 2052).block_queries, 32);
  EXPECT_EQ(plan_shape(qsa, 262'144).block_queries, 32);
  EXPECT_EQ(plan_shape(qsa, 1'048'576).block_queries, 15);
  EXPECT_EQ(plan_shape(qsa, Geometry::kPositions).block_queries, 1);
  GeometryOptions wide;
  wide.index_heads = 64;
  EXPECT_EQ(plan_shape(*Geometry::admit(wide), 2052).block_queries, 4);
  for (std::int64_t tokens = 1; tokens < 16'000'000; tokens = tokens * 3 + 1) {
    const PlanShape shape = plan_shape(qsa, tokens);
    EXPECT_GE(shape.score_stride, qsa.groups(tokens) + 15) << tokens;
    EXPECT_LE(shape.score_floats * 4, 16 << 20) << tokens;
  }
}

}  // namespace
}  // namespace seriatim
