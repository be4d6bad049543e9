// The scratch of an engine: known beforehand, taken once, never more; and its accounting.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>

#include "support/heap.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

class WideExecutor final : public Executor {
 public:
  explicit WideExecutor(int workers) : workers_(workers) {}
  int concurrency() const override { return workers_; }
  void run(std::int64_t units, Task& task) override {
    for (std::int64_t unit = 0; unit < units; ++unit) task.run(unit, static_cast<int>(unit % workers_));
  }

 private:
  int workers_;
};

// Kind of transformers#48788 and llama.cpp#25468: scratch of queries x keys that is only found out by running out of
// it.
TEST(Engine, TakesExactlyTheBytesItSaysBeforehand) {
  (void)Engine::host();  // the kernels are chosen once in a process
  for (const std::int64_t group_tokens : {1, 4}) {
    const Geometry geometry = *Geometry::admit(small_path(group_tokens));
    for (const std::int64_t visible : {std::int64_t{0}, std::int64_t{3}, std::int64_t{200}, std::int64_t{131'072}}) {
      for (const int workers : {1, 3}) {
        WideExecutor executor(workers);
        Engine engine = *Engine::host(executor);
        const StepLimits limits{visible, 100'000, 7};
        const auto stated = engine.bytes_for(geometry, limits);
        ASSERT_TRUE(stated.ok());
        EXPECT_EQ(engine.bytes(), 0);
        Status reserved;
        const HeapUse use = heap_use_of([&] { reserved = engine.reserve(geometry, limits); });
        ASSERT_TRUE(reserved.ok());
        EXPECT_EQ(use.bytes, *stated) << visible << " tokens, " << workers << " workers";
        EXPECT_EQ(engine.bytes(), *stated);
        EXPECT_GT(use.calls, 0);
        const HeapUse again = heap_use_of([&] { reserved = engine.reserve(geometry, {visible / 2, 1, 1}); });
        EXPECT_TRUE(reserved.ok() && again.calls == 0);
      }
    }
  }
}

TEST(Engine, ScratchGrowsWithTheVisibleTokensAndNotWithTheQueries) {
  const Geometry geometry = *Geometry::admit(GeometryOptions{});
  const Engine engine = *Engine::host(serial_executor(), default_kernels(), Screening::kOff);
  const std::int64_t short_run = *engine.bytes_for(geometry, {4096, 1, 1});
  const std::int64_t long_run = *engine.bytes_for(geometry, {262'144, 1, 1});
  const std::int64_t planned = plan_row_scratch_entries(geometry, 262'144) - plan_row_scratch_entries(geometry, 4096);
  EXPECT_EQ(long_run - short_run, (32 * (65'552 - 1040) + planned) * 4)
      << "scores of a block of 32 queries, by whole panels";
  EXPECT_LT(long_run, std::int64_t{16} << 20);
  EXPECT_EQ(*engine.bytes_for(geometry, {262'144, 1'000'000, 1}), long_run);
  EXPECT_LT(*engine.bytes_for(geometry, {262'144, 1'000'000, 1000}) - long_run, 64'000);

  const Engine screening = *Engine::host(serial_executor(), default_kernels(), Screening::kOn);
  const std::int64_t more = *screening.bytes_for(geometry, {262'144, 1, 1}) - long_run;
  EXPECT_GT(more, 65'536 * 4 * 2) << "norms of the groups, and what rounding them took off";
  EXPECT_LT(more, std::int64_t{2} << 20);
}

TEST(Engine, NoCallWithinWhatIsReservedTakesMemory) {
  Story story(small_path(), 200, 131);
  HeldStory held(story, 200);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  Engine engine = engine_for(story.geometry, 200, serial_executor(), default_kernels(), 3);
  const Asked prompt(story, every_token(0, 120));
  const Asked one(story, every_token(170, 1));
  const Asked others(story, every_token(30, 79));
  const std::vector<PlanAsk> plans{{&layer, prompt.for_plan()}, {&layer, one.for_plan()}, {&layer, others.for_plan()}};
  const std::vector<AttendAsk> attends{
      {&layer, prompt.for_attend()}, {&layer, one.for_attend()}, {&layer, others.for_attend()}};
  Answers answers(story.geometry, 200);
  Status planned;
  Status attended;
  Engine screening = *Engine::host(serial_executor(), default_kernels(), Screening::kOn);
  ASSERT_TRUE(screening.reserve(story.geometry, {200, 200, 3}).ok());
  EXPECT_EQ(heap_use_of([&] { planned = screening.plan(plans, NanPolicy::kRefuse, answers.rows_from(0)); }).calls, 0);
  EXPECT_TRUE(planned.ok());
  EXPECT_GT(screening.done().groups_screened, 1000);
  for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) {
    const HeapUse use = heap_use_of([&] {
      planned = engine.plan(plans, nan, answers.rows_from(0));
      attended = engine.attend(attends, answers.rows_from(0), answers.output.writable(), answers.lse.writable());
    });
    EXPECT_EQ(use.calls, 0);
    EXPECT_TRUE(planned.ok() && attended.ok());
    EXPECT_GT(sparse_rows(answers), 50);
  }
}

TEST(Engine, RefusesMoreThanWasReservedAndGrowsWhereNothingWas) {
  const Story story(small_path(), 100, 133);
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  const Asked two(story, std::vector<std::int64_t>{20, 80});
  const std::vector<PlanAsk> asks{{&layer, two.for_plan()}, {&layer, two.for_plan()}};
  Answers answers(story.geometry, 4);
  const auto plan_with = [&](const StepLimits& limits) {
    Engine engine = *Engine::host();
    EXPECT_TRUE(engine.reserve(story.geometry, limits).ok());
    return engine.plan(asks, NanPolicy::kRefuse, answers.rows_from(0));
  };
  EXPECT_TRUE(fails_with(plan_with({80, 4, 2}), Code::kCapacity, "engine", 1));
  EXPECT_EQ(plan_with({80, 4, 2}).place().ask, 0);
  EXPECT_TRUE(fails_with(plan_with({81, 3, 2}), Code::kCapacity, "engine", -1));
  EXPECT_TRUE(fails_with(plan_with({81, 4, 1}), Code::kCapacity, "engine", -1));
  EXPECT_TRUE(answers.rows_untouched());
  EXPECT_TRUE(plan_with({81, 4, 2}).ok());

  GeometryOptions wider = small_path();
  wider.head_dim = 4096;
  Engine reserved = engine_for(story.geometry, 100);
  const Story wide(wider, 100, 134);
  HeldStory wide_held(wide, 100);
  EXPECT_TRUE(fails_with(reserved.plan(wide_held.snapshot().layer(0), Asked(wide, every_token(0, 2)).for_plan(),
                                       NanPolicy::kRefuse, answers.rows_from(0)),
                         Code::kCapacity, "engine"));
  Engine free = *Engine::host();
  EXPECT_TRUE(free.plan(asks, NanPolicy::kRefuse, answers.rows_from(0)).ok());
  EXPECT_TRUE(free.plan(wide_held.snapshot().layer(0), Asked(wide, every_token(0, 2)).for_plan(), NanPolicy::kRefuse,
                        answers.rows_from(0))
                  .ok());
  const std::int64_t bytes = free.bytes();
  EXPECT_TRUE(free.plan(asks, NanPolicy::kRefuse, answers.rows_from(0)).ok());
  EXPECT_EQ(free.bytes(), bytes);
}

TEST(Engine, RefusesLimitsThatAreNone) {
  const Geometry geometry = *Geometry::admit(small_path());
  Engine engine = *Engine::host();
  EXPECT_TRUE(fails_with(engine.reserve(geometry, {-1, 1, 1}), Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(
      fails_with(engine.reserve(geometry, {Geometry::kPositions + 1, 1, 1}), Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(fails_with(engine.bytes_for(geometry, {std::numeric_limits<std::int64_t>::max(), 1, 1}).status(),
                         Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(fails_with(engine.reserve(geometry, {100, -1, 1}), Code::kInvalidArgument, "limits"));
  EXPECT_TRUE(fails_with(engine.reserve(geometry, {100, 1, -1}), Code::kInvalidArgument, "limits"));
  WideExecutor none(-1);
  EXPECT_TRUE(fails_with(Engine::host(none).status(), Code::kInvalidArgument, "executor"));
}

TEST(Engine, SizesPast32BitsAreStatedWithoutAllocating) {
  const Geometry geometry = *Geometry::admit(small_path(1));
  const Engine engine = *Engine::host();
  std::int64_t stated = 0;
  const HeapUse use = heap_use_of([&] { stated = *engine.bytes_for(geometry, {Geometry::kPositions, 1, 1}); });
  EXPECT_GT(stated, std::int64_t{1} << 34);
  EXPECT_EQ(use.calls, 0);
  WideExecutor widest(std::numeric_limits<int>::max());
  EXPECT_TRUE(fails_with(Engine::host(widest)->bytes_for(geometry, {Geometry::kPositions, 1, 1}).status(),
                         Code::kOverflow, "limits"));
}

TEST(Engine, SaysThatTheSystemRefusedMemory) {
  const Geometry geometry = *Geometry::admit(small_path());
  Engine engine = *Engine::host();
  const HeapLimit limit(1 << 20);
  EXPECT_TRUE(fails_with(engine.reserve(geometry, {1'000'000, 1, 1}), Code::kOutOfMemory, "engine"));
  EXPECT_TRUE(engine.reserve(geometry, {1000, 1, 1}).ok());
}

TEST(Engine, CountsTheWorkOfSuccessfulCalls) {
  const Story story(small_path(), 200, 132);  // r = 4, B = 32: dense up to 35 visible tokens
  HeldStory held(story, 199);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, 200);
  Answers answers(story.geometry, 3);
  const auto plan_for = [&](std::vector<std::int64_t> tokens, NanPolicy nan) {
    return engine.plan(snapshot.layer(0), Asked(story, tokens).for_plan(), nan, answers.rows_from(0));
  };
  const auto expect = [&](const WorkDone& want) {
    const WorkDone done = engine.done();
    EXPECT_EQ(done.queries, want.queries);
    EXPECT_EQ(done.dense_rows, want.dense_rows);
    EXPECT_EQ(done.groups_scored, want.groups_scored);
    EXPECT_EQ(done.groups_selected, want.groups_selected);
    EXPECT_EQ(done.row_tokens, want.row_tokens);
  };
  expect({});
  ASSERT_TRUE(plan_for({34, 35, 198}, NanPolicy::kRefuse).ok());
  // 35 visible: 8 groups and 3 of tail, unscored. 36: 9 groups of which 8. 199: 49 groups of which 8, and 3 of tail.
  expect({.queries = 3, .dense_rows = 1, .groups_scored = 9 + 49, .groups_selected = 24, .row_tokens = 35 + 32 + 35});
  EXPECT_FALSE(plan_for({34, 199, 198}, NanPolicy::kRefuse).ok());
  expect({.queries = 3, .dense_rows = 1, .groups_scored = 9 + 49, .groups_selected = 24, .row_tokens = 35 + 32 + 35});
  ASSERT_TRUE(plan_for({1}, NanPolicy::kExclude).ok());
  expect(
      {.queries = 4, .dense_rows = 2, .groups_scored = 9 + 49, .groups_selected = 24, .row_tokens = 35 + 32 + 35 + 2});
  ASSERT_TRUE(plan_for({34}, NanPolicy::kExclude).ok());
  expect({.queries = 5,
          .dense_rows = 3,
          .groups_scored = 9 + 49 + 8,
          .groups_selected = 32,
          .row_tokens = 35 + 32 + 35 + 2 + 35});
  engine.clear_done();
  expect({});
}

}  // namespace
}  // namespace seriatim
