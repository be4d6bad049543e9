// Planning a batch: rows by the rule, errors that name the query and the group, and nothing written on any of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "seriatim/score.hpp"
#include "support/mapped_memory.hpp"
#include "support/path.hpp"
#include "support/plain_layer.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Finished keys of single tokens: a token's index key is its group's.
GeometryOptions finished_keys(bool relu = true) {
  GeometryOptions options = small_path(1);
  options.pooling = Pooling::kNone;
  options.scale_at = ScaleAt::kNowhere;
  options.relu = relu;
  return options;
}

// The scores that the score room gives for one token's query.
std::vector<float> scores_of(const Story& story, const LayerView& layer, std::int64_t token) {
  const PooledKeys visible = layer.pooled_up_to(story.anchor + token);
  std::vector<float> scores(static_cast<std::size_t>(visible.groups));
  const ConstTensor weights =
      story.head_weights.elements() > 0 ? row_of(story.head_weights.view(), token) : ConstTensor{};
  EXPECT_TRUE(score_groups(story.geometry, row_of(story.index_queries.view(), token), weights, visible, scores).ok());
  return scores;
}

// The row that the row room makes of scores.
std::vector<std::int32_t> row_for(const Story& story, std::int64_t token, std::span<const float> scores,
                                  NanPolicy nan = NanPolicy::kRefuse) {
  std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(story.geometry, token + 1)));
  std::vector<std::int32_t> row(static_cast<std::size_t>(story.geometry.row_capacity()));
  const auto count = plan_row(story.geometry, {story.anchor, token + 1}, scores, nan, scratch, row);
  EXPECT_TRUE(count.ok()) << count.status().message();
  row.resize(static_cast<std::size_t>(*count));
  return row;
}

TEST(Plan, GivesTheRowOfEachQuerysOwnScores) {
  for (const bool weighted : {false, true}) {
    for (const bool relu : {true, false}) {
      GeometryOptions options = small_path(3);
      options.relu = relu;
      Story story(options, 160, 141, 9);
      Random random(142);
      if (weighted) story.head_weights = random_tensor(random, DType::kF32, {160, 3});
      HeldStory held(story, 160);
      const Snapshot snapshot = held.snapshot();
      const Answers answers = one_call(story);
      std::int64_t negative = 0;
      for (std::int64_t token = 0; token < 160; ++token) {
        const auto scores = scores_of(story, snapshot.layer(0), token);
        negative += std::count_if(scores.begin(), scores.end(), [](float s) { return s < 0.0f; });
        EXPECT_TRUE(same_bytes<std::int32_t>(answers.row(token), row_for(story, token, scores))) << token;
        const auto row =
            std::span(answers.rows)
                .subspan(static_cast<std::size_t>(token * answers.stride), static_cast<std::size_t>(answers.stride));
        for (std::size_t i = answers.row(token).size(); i < row.size(); ++i)
          ASSERT_EQ(row[i], kRowPadding) << token << ", " << i;
      }
      EXPECT_EQ(negative > 0, weighted || !relu) << "0 is a floor only for relus without weights";
      EXPECT_GT(sparse_rows(answers), 100);
    }
  }
}

// Kind of TensorRT-LLM#18585 and transformers#45820: a future group has the best score.
TEST(Plan, NeverChoosesAFutureGroupHoweverGoodItsScore) {
  Story story(finished_keys(), 100, 143);
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t h = 0; h < 3; ++h) story.index_queries.set((60 * 3 + h) * 8 + i, 1.0f);
    for (std::int64_t t = 61; t < 100; ++t) story.index_keys.set(t * 8 + i, 1000.0f);
  }
  HeldStory all(story, 100);
  HeldStory past(story, 61);
  Engine engine = engine_for(story.geometry, 100);
  Answers with_future(story.geometry, 1);
  Answers without(story.geometry, 1);
  const std::vector<std::int64_t> token{60};
  ASSERT_TRUE(ask(all.snapshot().layer(0), story, token, engine, with_future).ok());
  ASSERT_TRUE(ask(past.snapshot().layer(0), story, token, engine, without).ok());
  EXPECT_TRUE(same_answers(with_future, without));
  EXPECT_EQ(with_future.counts[0], 8);
  EXPECT_LE(with_future.row(0).back(), 60);
}

// A story in which the scores of `group` are NaN for the queries in `bad`: two heads pass f32 and their weights cancel.
Story story_with_nan(std::initializer_list<std::int64_t> bad, std::initializer_list<std::int64_t> groups) {
  Story story(finished_keys(), 100, 144);
  story.head_weights = HostTensor(DType::kF32, {100, 3});
  story.head_weights.fill(1.0f);
  for (const std::int64_t token : bad) {
    story.head_weights.set(token * 3 + 2, -1.0f);
    for (std::int64_t h = 0; h < 3; ++h) story.index_queries.set((token * 3 + h) * 8, 1e30f);
  }
  for (std::int64_t t = 0; t < 100; ++t) story.index_keys.set(t * 8, 0.0f);
  for (const std::int64_t group : groups) story.index_keys.set(group * 8, 1e30f);
  return story;
}

// Kind of vllm#49896 and torch-xpu-ops#4839: a batch in which one query meets a NaN.
TEST(Plan, RefusesANanNamingTheFirstQueryAndGroupAndWritesNoRow) {
  const Story story = story_with_nan({70, 50, 90}, {33, 45});
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  ASSERT_TRUE(std::isnan(scores_of(story, snapshot.layer(0), 70)[33]));
  ASSERT_FALSE(std::isnan(scores_of(story, snapshot.layer(0), 70)[34]));
  const auto threads = make_executor(3);
  for (Executor* executor : {&serial_executor(), threads.get()}) {
    Engine engine = engine_for(story.geometry, 100, *executor);
    Answers answers(story.geometry, 5);
    const Asked asked(story, std::vector<std::int64_t>{20, 99, 70, 50, 21});
    const Status status = engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0));
    EXPECT_TRUE(fails_with(status, Code::kNotANumber, "scores", 2, 33));
    EXPECT_NE(status.message().find("group 33"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("query 2"), std::string::npos) << status.message();
    EXPECT_TRUE(answers.rows_untouched());
    EXPECT_EQ(engine.done().queries, 0);

    std::vector<std::int64_t> many(300, 60);
    many[170] = 90;
    many[171] = 70;
    Answers wide(story.geometry, 300);
    const Asked crowd(story, many);
    EXPECT_TRUE(fails_with(engine.plan(snapshot.layer(0), crowd.for_plan(), NanPolicy::kRefuse, wide.rows_from(0)),
                           Code::kNotANumber, "scores", 170, 33));
    EXPECT_TRUE(wide.rows_untouched()) << "not even the rows of the first 170 queries";

    const Asked others(story, std::vector<std::int64_t>{20, 99, 21});
    ASSERT_TRUE(engine.plan(snapshot.layer(0), others.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)).ok());
    EXPECT_FALSE(answers.rows_untouched());
  }
}

TEST(Plan, LeavesNanGroupsOutIfAsked) {
  const Story story = story_with_nan({70, 6}, {2, 33});
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, 100);
  Answers answers(story.geometry, 3);
  const Asked asked(story, std::vector<std::int64_t>{70, 6, 60});
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kExclude, answers.rows_from(0)).ok());
  EXPECT_TRUE(same_bytes<std::int32_t>(
      answers.row(0), row_for(story, 70, scores_of(story, snapshot.layer(0), 70), NanPolicy::kExclude)));
  EXPECT_EQ(answers.counts[0], 8) << "69 other groups fill the budget";
  EXPECT_EQ(std::count(answers.row(0).begin(), answers.row(0).end(), 33), 0);
  EXPECT_TRUE(same_bytes<std::int32_t>(answers.row(1), std::vector<std::int32_t>{0, 1, 3, 4, 5, 6})) << "shorter";
  EXPECT_EQ(answers.counts[2], 8);
}

TEST(Plan, DoesNotScoreWhereEverythingFitsSoANanIsNotMetThere) {
  const Story story = story_with_nan({6}, {2});
  HeldStory held(story, 100);
  Engine engine = engine_for(story.geometry, 100);
  Answers answers(story.geometry, 1);
  const Snapshot snapshot = held.snapshot();
  ASSERT_TRUE(engine
                  .plan(snapshot.layer(0), Asked(story, std::vector<std::int64_t>{6}).for_plan(), NanPolicy::kRefuse,
                        answers.rows_from(0))
                  .ok());
  EXPECT_EQ(answers.counts[0], 7);
  EXPECT_EQ(engine.done().groups_scored, 0);
}

TEST(Plan, TakesAnIndexQueryThatIsNotANumberForNanScores) {
  Story story(small_path(), 100, 145);
  story.index_queries.set(80 * 24 + 3, kNaN);
  story.index_queries.set(90 * 24 + 3, -kNaN);
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, 100);
  for (const std::int64_t token : {80, 90}) {
    Answers answers(story.geometry, 1);
    const Asked asked(story, std::vector<std::int64_t>{token});
    EXPECT_TRUE(fails_with(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0)),
                           Code::kNotANumber, "scores", 0, 0));
    EXPECT_TRUE(answers.rows_untouched());
  }
}

// A story whose scores lie around f32's end: some NaN, some infinite, some merely large.
Story story_near_the_end_of_f32(int turn, Random& random) {
  Story story(finished_keys(turn % 2 == 0), 30, 147 + static_cast<std::uint64_t>(turn));
  if (turn % 3 != 0) {
    story.head_weights = random_tensor(random, DType::kF32, {30, 3}, turn % 5 == 0 ? 1e-20f : 1.0f);
    if (turn % 7 == 0) story.head_weights.set(29 * 3, 0.0f);
  }
  // |query| x |key|: exponents that add up to some 36 .. 40; three queries in four are larger by turns.
  const float query_scale = std::pow(10.0f, 18.0f + 2.0f * random.uniform());
  const float key_scale = std::pow(10.0f, 19.6f + 0.8f * random.uniform());
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i) {
    story.index_queries.set(i, story.index_queries.get(i) * query_scale * (i / 24 % 4 == turn % 4 ? 1e-4f : 1.0f));
  }
  for (std::int64_t i = 0; i < story.index_keys.elements(); ++i)
    story.index_keys.set(i, story.index_keys.get(i) * key_scale);
  return story;
}

float largest_magnitude(std::span<const float> values) {
  float largest = 0.0f;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

// plan() may look for NaN only where a bound on the scores says that one could arise. The bound must never say no
// wrongly: plan refuses exactly what the scores themselves show, for one query and for many, with and without a known
// bound of the keys.
TEST(Plan, RefusesExactlyWhereTheScoresHoldANan) {
  Random random(146);
  std::int64_t refused = 0;
  std::int64_t accepted = 0;
  std::int64_t finite_but_large = 0;
  std::int64_t infinite = 0;
  for (int turn = 0; turn < 300; ++turn) {
    const Story story = story_near_the_end_of_f32(turn, random);
    HeldStory held(story, 30);
    const Snapshot snapshot = held.snapshot();
    LayerView layer = snapshot.layer(0);
    if (turn % 2 == 1) {
      layer.pooled.max_abs = 0.0f;
      for (std::int64_t i = 0; i < story.index_keys.elements(); ++i)
        layer.pooled.max_abs = std::max(layer.pooled.max_abs, std::fabs(story.index_keys.get(i)));
    }
    for (const std::int64_t queries : {1, 150}) {
      std::vector<std::int64_t> tokens;  // those with more groups than the budget
      for (std::int64_t q = 0; q < queries; ++q) tokens.push_back(queries == 1 ? 29 : 8 + (turn + 5 * q) % 22);
      Place first_nan;
      std::vector<std::vector<float>> scores;
      for (std::int64_t q = 0; q < queries; ++q) {
        scores.push_back(scores_of(story, layer, tokens[static_cast<std::size_t>(q)]));
        const auto nan =
            std::find_if(scores.back().begin(), scores.back().end(), [](float s) { return std::isnan(s); });
        if (first_nan.row < 0 && nan != scores.back().end()) first_nan = {q, nan - scores.back().begin()};
      }
      Engine engine = engine_for(story.geometry, 30);
      Answers answers(story.geometry, queries);
      const Asked asked(story, tokens);
      const Status status = engine.plan(layer, asked.for_plan(), NanPolicy::kRefuse, answers.rows_from(0));
      if (first_nan.row >= 0) {
        EXPECT_TRUE(fails_with(status, Code::kNotANumber, "scores", first_nan.row, first_nan.index))
            << turn << ", " << queries;
        EXPECT_TRUE(answers.rows_untouched());
        ++refused;
        continue;
      }
      ASSERT_TRUE(status.ok()) << turn << ": " << status.message();
      ++accepted;
      for (std::int64_t q = 0; q < queries; ++q) {
        const auto& own = scores[static_cast<std::size_t>(q)];
        EXPECT_TRUE(same_bytes<std::int32_t>(answers.row(q), row_for(story, tokens[static_cast<std::size_t>(q)], own)))
            << turn << ", " << q;
      }
      const float largest = largest_magnitude(scores.back());
      infinite += std::isinf(largest) ? 1 : 0;
      finite_but_large += std::isfinite(largest) && largest > 1e37f ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 40);
  EXPECT_GT(accepted, 40);
  EXPECT_GT(infinite, 10) << "an infinite score is a score";
  EXPECT_GT(finite_but_large, 10);
}

// Kind of vllm#54873: a short sequence in storage for 2051 entries, where the work followed the storage.
TEST(Plan, AndAttendReadOnlyWhatTheQuerySees) {
  GeometryOptions options = small_path();
  options.budget_tokens = 2048;
  const Story story(options, 4096, 148);
  const Geometry& geometry = story.geometry;
  HostTensor pooled(DType::kF32, {1024, 8});
  ASSERT_TRUE(pool_keys(geometry, story.norms(), story.index_keys.view(), 0, nullptr, pooled.writable()).ok());
  PlainLayer layer(geometry, 0, story.keys, &story.values, 100);
  layer.add_pooled(pooled);
  Engine engine = engine_for(geometry, 4096);
  Answers clean(geometry, 1);
  const std::vector<std::int64_t> token{99};
  ASSERT_TRUE(ask(layer.view(), story, token, engine, clean).ok());
  EXPECT_EQ(clean.counts[0], 100);
  for (std::int64_t page = 1; page < layer.pages(); ++page) layer.forbid_page(page);
  for (std::int64_t page = 2; page < layer.pooled_pages(); ++page)
    layer.forbid_pooled_page(page);  // 25 groups see two panels
  engine.clear_done();
  for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) {
    Answers answers(geometry, 1);
    const Asked asked(story, token);
    ASSERT_TRUE(engine.plan(layer.view(), asked.for_plan(), nan, answers.rows_from(0)).ok());
    ASSERT_TRUE(engine
                    .attend(layer.view(), asked.for_attend(), answers.rows_from(0), answers.output.writable(),
                            answers.lse.writable())
                    .ok());
    EXPECT_TRUE(same_answers(answers, clean));
  }
  EXPECT_EQ(engine.done().row_tokens, 200);
  EXPECT_EQ(engine.done().groups_scored, 25) << "only where NaN groups are to be left out";
}

TEST(Plan, TakesNoQueriesAtAll) {
  const Story story(small_path(), 10, 151);
  HeldStory held(story, 10);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, 10);
  const Asked none(story, {});
  EXPECT_TRUE(engine.plan(snapshot.layer(0), none.for_plan(), NanPolicy::kRefuse, {}).ok());
  EXPECT_EQ(engine.done().queries, 0);
}

// Kind of vllm#52109 and MSLK#257.
TEST(Plan, TakesStridesPast32Bits) {
  Story story(small_path(), 100, 152);
  Random random(153);
  story.head_weights = random_tensor(random, DType::kF32, {100, 3});
  const Answers expected = one_call(story);
  HeldStory held(story, 100);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, 100);
  const std::vector<std::int64_t> positions{50, 99, 77};
  const std::int64_t far = (std::int64_t{1} << 31) + 256;  // the third query lies past 2^32
  MappedMemory queries_memory(2 * far + 4096);
  MappedMemory weights_memory(2 * far + 4096);
  if (queries_memory.data() == nullptr || weights_memory.data() == nullptr) GTEST_SKIP() << "no such address space";
  for (std::int64_t q = 0; q < 3; ++q) {
    std::memcpy(queries_memory.data() + q * far, story.index_queries.view().at(positions[static_cast<std::size_t>(q)]),
                3 * 8 * 4);
    std::memcpy(weights_memory.data() + q * far, story.head_weights.view().at(positions[static_cast<std::size_t>(q)]),
                3 * 4);
  }
  const void* far_queries = queries_memory.data();
  const void* far_weights = weights_memory.data();
  IndexQueries queries{dense_view(far_queries, DType::kF32, {3, 3, 8}), dense_view(far_weights, DType::kF32, {3, 3}),
                       positions};
  queries.queries.stride_bytes[0] = far;
  queries.head_weights.stride_bytes[0] = far;
  Answers answers(story.geometry, 3);
  ASSERT_TRUE(engine.plan(snapshot.layer(0), queries, NanPolicy::kRefuse, answers.rows_from(0)).ok());
  for (std::int64_t q = 0; q < 3; ++q) {
    EXPECT_TRUE(same_bytes(answers.row(q), expected.row(positions[static_cast<std::size_t>(q)]))) << q;
  }
}

TEST(Plan, InfiniteScoresAreScores) {
  // One head, one dim: the score is the key times the query, past f32 where it is large.
  Story story(finished_keys(false), 40, 154);
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
    story.index_queries.set(i, i % 8 == 0 ? 1e30f : 0.0f);
  for (std::int64_t t = 0; t < 40; ++t) story.index_keys.set(t * 8, t % 4 == 0 ? 1e30f : t % 4 == 1 ? -1e30f : 1.0f);
  HeldStory held(story, 40);
  const Snapshot snapshot = held.snapshot();
  const auto scores = scores_of(story, snapshot.layer(0), 39);
  ASSERT_EQ(scores[0], kInfinity);
  ASSERT_EQ(scores[1], -kInfinity);
  const Answers answers = one_call(story);
  EXPECT_TRUE(same_bytes<std::int32_t>(answers.row(39), std::vector<std::int32_t>{0, 4, 8, 12, 16, 20, 24, 28}));
}

}  // namespace
}  // namespace seriatim
