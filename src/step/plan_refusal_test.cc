// What plan() refuses: each argument wrong in turn, by name, and nothing written.
#include <gtest/gtest.h>

#include <limits>

#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// A call with everything right, of which a test spoils one argument.
struct PlanCall {
  explicit PlanCall(const Story& story)
      : held(story, 100),
        snapshot(held.snapshot()),
        layer(snapshot.layer(0)),
        engine(engine_for(story.geometry, 80)),
        asked(story, std::vector<std::int64_t>{5, 60, 79}),
        queries(asked.for_plan()),
        answers(story.geometry, 3),
        rows(answers.rows_from(0)) {}

  void expect_refused(std::string_view argument, Code code = Code::kInvalidArgument, std::int64_t row = -2) {
    EXPECT_TRUE(fails_with(engine.plan(layer, queries, NanPolicy::kRefuse, rows), code, argument, row));
    EXPECT_TRUE(answers.rows_untouched());
    EXPECT_EQ(engine.done().queries, 0);
  }

  HeldStory held;
  Snapshot snapshot;
  LayerView layer;
  Engine engine;
  Asked asked;
  IndexQueries queries;
  Answers answers;
  Rows rows;
};

TEST(PlanRefusal, RefusesWhatDoesNotFitAndWritesNothing) {
  Story story(small_path(), 100, 149, 1000);
  story.head_weights = HostTensor(DType::kF32, {100, 3});
  const auto spoil = [&](std::string_view argument, auto&& change, Code code = Code::kInvalidArgument,
                         std::int64_t row = -2) {
    PlanCall call(story);
    change(call);
    call.expect_refused(argument, code, row);
  };
  std::vector<std::int64_t> positions{1005, 1060, 1079};
  const auto at = [&](std::int64_t last) {
    positions[2] = last;
    return std::span<const std::int64_t>(positions);
  };
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.dtype = DType::kBf16; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.rank = 2; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.shape[0] = -1; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.shape[1] = 2; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.shape[2] = 7; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.stride_bytes[2] = -4; });
  spoil("index_queries", [](PlanCall& c) { c.queries.queries.data = nullptr; });
  spoil("index_head_weights", [](PlanCall& c) { c.queries.head_weights.shape[0] = 2; });
  spoil("index_head_weights", [](PlanCall& c) { c.queries.head_weights.data = nullptr; });
  spoil("index_head_weights", [](PlanCall& c) { c.queries.head_weights.dtype = DType::kF16; });
  spoil("positions", [](PlanCall& c) { c.queries.positions = c.queries.positions.first(2); });
  spoil("positions", [&](PlanCall& c) { c.queries.positions = at(999); }, Code::kInvalidArgument, 2);
  spoil("positions", [&](PlanCall& c) { c.queries.positions = at(1100); }, Code::kInvalidArgument, 2);
  spoil("positions", [&](PlanCall& c) { c.queries.positions = at(-1); }, Code::kInvalidArgument, 2);
  spoil(
      "positions", [&](PlanCall& c) { c.queries.positions = at(std::numeric_limits<std::int64_t>::min()); },
      Code::kInvalidArgument, 2);
  spoil(
      "positions", [&](PlanCall& c) { c.queries.positions = at(std::numeric_limits<std::int64_t>::max()); },
      Code::kInvalidArgument, 2);
  spoil("engine", [&](PlanCall& c) { c.queries.positions = at(1080); }, Code::kCapacity, 2);
  spoil("rows", [](PlanCall& c) { c.rows.positions = nullptr; });
  spoil("rows", [](PlanCall& c) { c.rows.counts = nullptr; });
  spoil("rows", [](PlanCall& c) { c.rows.stride = 34; });
  spoil("rows", [](PlanCall& c) { c.rows.counts = c.rows.positions + 3 * c.rows.stride - 1; });  // of the last row
  spoil("layer", [](PlanCall& c) { c.layer.pooled.groups = 0; });
  PlanCall right(story);
  EXPECT_TRUE(right.engine.plan(right.layer, right.queries, NanPolicy::kRefuse, right.rows).ok());
}

TEST(PlanRefusal, RefusesAGeometryThatNeedsMoreScratchThanWasReserved) {
  const Story story(small_path(1), 100, 150);
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(*Geometry::admit(small_path(4)), 100);
  Answers answers(story.geometry, 1);
  const Asked asked(story, std::vector<std::int64_t>{99});
  EXPECT_TRUE(fails_with(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)),
                         Code::kCapacity, "engine"));
  EXPECT_TRUE(answers.rows_untouched());
}

}  // namespace
}  // namespace seriatim
