// The scratch of the path: known beforehand, taken once, never more.
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>

#include "support/counting_new.hpp"
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
TEST(Workspace, TakesExactlyTheBytesItSaysBeforehand) {
  (void)Workspace::create(*Geometry::admit(small_path()), 1);  // the kernels are chosen once in a process
  for (const std::int64_t group_tokens : {1, 4}) {
    const Geometry geometry = *Geometry::admit(small_path(group_tokens));
    for (const std::int64_t visible : {std::int64_t{0}, std::int64_t{3}, std::int64_t{200}, std::int64_t{131'072}}) {
      for (const int workers : {1, 3}) {
        WideExecutor executor(workers);
        const auto stated = Workspace::bytes(geometry, visible, workers);
        ASSERT_TRUE(stated.ok());
        std::optional<Result<Workspace>> made;
        const HeapUse use = heap_use_of([&] { made.emplace(Workspace::create(geometry, visible, executor)); });
        ASSERT_TRUE(made->ok());
        EXPECT_EQ(use.bytes, *stated) << visible << " tokens, " << workers << " workers";
        EXPECT_EQ((*made)->bytes(), *stated);
        EXPECT_GT(use.calls, 0);
      }
    }
  }
}

TEST(Workspace, GrowsWithTheVisibleTokensAndNotWithTheQueries) {
  const Geometry geometry = *Geometry::admit(GeometryOptions{});
  const std::int64_t short_run = *Workspace::bytes(geometry, 4096, 1);
  const std::int64_t long_run = *Workspace::bytes(geometry, 262'144, 1);
  const std::int64_t planned = plan_row_scratch_entries(geometry, 262'144) - plan_row_scratch_entries(geometry, 4096);
  EXPECT_EQ(long_run - short_run, (32 * (65'552 - 1040) + planned) * 4)
      << "scores of a block of 32 queries, by whole panels";
  EXPECT_LT(long_run, std::int64_t{16} << 20);
}

TEST(Workspace, PlanAndAttendAllocateNothing) {
  Story story(small_path(), 200, 131);
  HeldStory held(story, 200);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  Workspace workspace = *Workspace::create(story.geometry, 200);
  const Asked asked(story, every_token(0, 200));
  const IndexQueries index_queries = asked.for_plan();
  const AttendQueries queries = asked.for_attend();
  Answers answers(story.geometry, 200);
  Status planned;
  Status attended;
  for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) {
    const HeapUse use = heap_use_of([&] {
      planned = plan(layer, index_queries, nan, workspace, answers.rows_from(0));
      attended =
          attend(layer, queries, answers.rows_from(0), workspace, answers.output.writable(), answers.lse.writable());
    });
    EXPECT_EQ(use.calls, 0);
    EXPECT_TRUE(planned.ok() && attended.ok());
    EXPECT_GT(sparse_rows(answers), 100);
  }
}

TEST(Workspace, RefusesLimitsThatAreNone) {
  const Geometry geometry = *Geometry::admit(small_path());
  EXPECT_TRUE(fails_with(Workspace::create(geometry, -1).status(), Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(
      fails_with(Workspace::create(geometry, Geometry::kPositions + 1).status(), Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(fails_with(Workspace::bytes(geometry, std::numeric_limits<std::int64_t>::max(), 1).status(),
                         Code::kInvalidArgument, "visible"));
  EXPECT_TRUE(fails_with(Workspace::bytes(geometry, 100, 0).status(), Code::kInvalidArgument, "executor"));
  WideExecutor none(-1);
  EXPECT_TRUE(fails_with(Workspace::create(geometry, 100, none).status(), Code::kInvalidArgument, "executor"));
}

TEST(Workspace, SizesPast32BitsAreStatedWithoutAllocating) {
  GeometryOptions options = small_path(1);
  const Geometry geometry = *Geometry::admit(options);
  std::int64_t stated = 0;
  const HeapUse use = heap_use_of([&] { stated = *Workspace::bytes(geometry, Geometry::kPositions, 1); });
  EXPECT_GT(stated, std::int64_t{1} << 34);
  EXPECT_EQ(use.calls, 0);
  EXPECT_TRUE(fails_with(Workspace::bytes(geometry, Geometry::kPositions, std::numeric_limits<int>::max()).status(),
                         Code::kOverflow, "workspace"));
}

TEST(Workspace, SaysThatTheSystemRefusedMemory) {
  const Geometry geometry = *Geometry::admit(small_path());
  const HeapLimit limit(1 << 20);
  EXPECT_TRUE(fails_with(Workspace::create(geometry, 1'000'000).status(), Code::kOutOfMemory, "workspace"));
  EXPECT_TRUE(Workspace::create(geometry, 1000).ok());
}

TEST(Workspace, CountsTheWorkOfSuccessfulCalls) {
  const Story story(small_path(), 200, 132);  // r = 4, B = 32: dense up to 35 visible tokens
  HeldStory held(story, 199);
  const Snapshot snapshot = held.snapshot();
  Workspace workspace = *Workspace::create(story.geometry, 200);
  Answers answers(story.geometry, 3);
  const auto plan_for = [&](std::vector<std::int64_t> tokens, NanPolicy nan) {
    return plan(snapshot.layer(0), Asked(story, tokens).for_plan(), nan, workspace, answers.rows_from(0));
  };
  const auto expect = [&](const WorkDone& want) {
    const WorkDone& done = workspace.done();
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
  workspace.clear_done();
  expect({});
}

}  // namespace
}  // namespace seriatim
