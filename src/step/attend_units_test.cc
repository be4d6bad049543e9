// However a batch is cut into units, for whatever number of workers and kernels, every bit is that of the reference.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "step/attend_scratch.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Rows of five splits, over one or two kv heads with few query heads or many.
GeometryOptions wide_rows(std::int64_t kv_heads, std::int64_t heads_per_kv) {
  GeometryOptions options = small_path();
  options.budget_tokens = 600;
  options.query_heads = heads_per_kv * kv_heads;
  options.kv_heads = kv_heads;
  return options;
}

// `queries` tokens, every third one from the 650th on; none of them sees fewer than the budget.
std::vector<std::int64_t> some_tokens(std::int64_t queries) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(queries));
  for (std::size_t q = 0; q < tokens.size(); ++q) tokens[q] = 650 + static_cast<std::int64_t>(q) * 3;
  return tokens;
}

Answers answer(const Story& story, const LayerView& layer, std::int64_t queries, Executor& executor, Kernels kernels) {
  Answers answers(story.geometry, queries);
  const auto tokens = some_tokens(queries);
  const Asked asked(story, tokens);
  Engine engine = engine_for(story.geometry, 900, executor, kernels);
  EXPECT_TRUE(engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
  EXPECT_TRUE(
      engine.attend(layer, asked.for_attend(), answers.rows_from(0), answers.output.writable(), answers.lse.writable())
          .ok());
  return answers;
}

TEST(AttendUnits, GiveTheSameBitsForAnyNumberOfWorkersAndQueries) {
  std::int64_t compared = 0;
  for (const auto& [kv_heads, heads] : {std::pair(1, 6), std::pair(2, 6), std::pair(1, 72)}) {
    Story story(wide_rows(kv_heads, heads), 900, 171, 50);
    for (std::int64_t h = 0; h < story.geometry.query_heads(); ++h) story.sinks.push_back(static_cast<float>(h) - 4.0f);
    const HeldStory held(story, 900);
    const Snapshot snapshot = held.snapshot();
    const LayerView layer = snapshot.layer(0);
    for (const std::int64_t queries : {1, 2, 3, 5, 40}) {
      const Answers want = answer(story, layer, queries, serial_executor(), Kernels::reference());
      ASSERT_GT(want.row(0).size(), 4u * 128u);
      for (const int threads : {1, 2, 3, 8}) {
        const auto executor = make_executor(threads);
        for (const Kernels& kernels : Kernels::available()) {
          EXPECT_TRUE(same_answers(answer(story, layer, queries, *executor, kernels), want))
              << queries << " queries, " << kv_heads << " x " << heads << " heads, " << threads << " threads, "
              << kernels.name();
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 60);
}

TEST(AttendUnits, NameTheFirstOverflowWhicheverUnitFindsIt) {
  struct Case {
    std::int64_t queries, kv_heads, heads;
  };
  for (const auto& [queries, kv_heads, heads] :
       {Case{1, 2, 6}, Case{3, 2, 6}, Case{40, 2, 6}, Case{1, 1, 72}, Case{3, 1, 72}}) {
    Story story(wide_rows(kv_heads, heads), 900, 172);
    const std::int64_t all_heads = story.geometry.query_heads();
    const auto tokens = some_tokens(queries);
    const std::int64_t first = queries / 2;
    for (const std::int64_t query : {first, queries - 1}) {
      for (const std::int64_t head : {std::int64_t{4}, all_heads - 5}) {
        for (std::int64_t i = 0; i < 8; ++i)
          story.queries.set((tokens[static_cast<std::size_t>(query)] * all_heads + head) * 8 + i, 3e38f);
      }
    }
    const HeldStory held(story, 900);
    const Snapshot snapshot = held.snapshot();
    for (const int threads : {1, 2, 3, 8}) {
      const auto executor = make_executor(threads);
      Answers answers(story.geometry, queries);
      const Asked asked(story, tokens);
      Engine engine = engine_for(story.geometry, 900, *executor);
      ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
      const Status status = engine.attend(snapshot.layer(0), asked.for_attend(), answers.rows_from(0),
                                          answers.output.writable(), answers.lse.writable());
      EXPECT_TRUE(fails_with(status, Code::kOverflow, "output", first, 4))
          << queries << " queries, " << threads << " threads";
      std::int64_t nans = 0;
      for (std::int64_t i = 0; i < answers.lse.elements(); ++i)
        nans += answers.lse.get(i) != answers.lse.get(i) ? 1 : 0;
      EXPECT_EQ(nans, first == queries - 1 ? 2 : 4);
    }
  }
}

TEST(AttendUnits, ShareScratchThatDoesNotGrowWithQueries) {
  const Geometry geometry = *Geometry::admit(GeometryOptions{});
  EXPECT_EQ(attend_split_slots(1), 0);
  EXPECT_EQ(attend_split_slots(2), 16);
  EXPECT_LT(attend_worker_floats(geometry) * 4, std::int64_t{512} << 10) << "of a worker's private cache";
}

}  // namespace
}  // namespace seriatim
