// Up to B + r - 1 visible tokens a sparse row is the dense causal row, and its output the dense output, byte for byte,
// whatever the scores are. One token more and exactly one group is dropped.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "seriatim/attend.hpp"
#include "seriatim/oracle.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum class Scores { kRandom, kAllZero, kRising, kFalling, kMostlyZeros, kInfinities, kSignedZeros };
constexpr Scores kAllScores[] = {Scores::kRandom,      Scores::kAllZero,    Scores::kRising,     Scores::kFalling,
                                 Scores::kMostlyZeros, Scores::kInfinities, Scores::kSignedZeros};

std::vector<float> make_scores(Scores kind, std::int64_t groups, Random& random) {
  std::vector<float> scores(static_cast<std::size_t>(groups));
  for (std::int64_t g = 0; g < groups; ++g) {
    const float any = random.normal();
    const auto draw = [&]() -> float {
      switch (kind) {
        case Scores::kRandom:
          return any;
        case Scores::kAllZero:
          return 0.0f;
        case Scores::kRising:
          return static_cast<float>(g);
        case Scores::kFalling:
          return -static_cast<float>(g);
        case Scores::kMostlyZeros:
          return any > 1.0f ? any : 0.0f;
        case Scores::kInfinities:
          return any > 0.5f ? kInfinity : any < -0.5f ? -kInfinity : any;
        case Scores::kSignedZeros:
          return any > 0.0f ? 0.0f : -0.0f;
      }
      return any;
    };
    scores[static_cast<std::size_t>(g)] = draw();
  }
  return scores;
}

// QSA's group size and budget; heads as small as they may be.
GeometryOptions qsa(DType dtype) {
  GeometryOptions options;
  options.query_heads = 2;
  options.kv_heads = 1;
  options.head_dim = 8;
  options.index_heads = 2;
  options.index_dim = 4;
  options.index_rotary_dim = 2;
  options.kv_dtype = dtype;
  options.index_dtype = dtype;
  return options;
}

class DenseIdentity : public ::testing::TestWithParam<DType> {
 protected:
  static constexpr std::int64_t kCeiling = 2051;
  static constexpr std::int64_t kAnchor = 7;

  DenseIdentity() : story(qsa(GetParam()), kCeiling + 1, 111, kAnchor), held(story, kCeiling + 1) {}

  // The row that these scores give, in storage for `scores.size()` groups and more.
  std::vector<std::int32_t> planned(std::int64_t visible, std::span<const float> scores) {
    std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(story.geometry, visible)));
    std::vector<std::int32_t> row(static_cast<std::size_t>(story.geometry.row_capacity()));
    const auto count = plan_row(story.geometry, {kAnchor, visible}, scores, NanPolicy::kRefuse, scratch, row);
    EXPECT_TRUE(count.ok()) << count.status().message();
    row.resize(static_cast<std::size_t>(*count));
    return row;
  }

  Story story;
  HeldStory held;
};

// Kind of Quest#22 (a prefix below the budget lost tokens) and sglang#30378 (visible counts from 0 on).
TEST_P(DenseIdentity, RowsAreTheDenseRowAtEveryCountWhateverTheScores) {
  Random random(112);
  std::int64_t compared = 0;
  for (std::int64_t visible = 0; visible <= kCeiling; ++visible) {
    std::vector<std::int32_t> dense(static_cast<std::size_t>(visible));
    ASSERT_TRUE(dense_row(story.geometry, {kAnchor, visible}, dense).ok());
    for (const Scores kind : kAllScores) {
      const auto row = planned(visible, make_scores(kind, visible / 4, random));
      ASSERT_EQ(row.size(), dense.size()) << visible;
      if (visible == 0) continue;
      ASSERT_TRUE(same_bytes<std::int32_t>(row, dense)) << visible;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2051 * 7);
}

// Kind of imp#2072: sparse and dense attention drifted apart below the budget.
TEST_P(DenseIdentity, OutputsOfTheWholePathAreTheDenseOutputsAtEveryCount) {
  const Geometry& geometry = story.geometry;
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(geometry, kCeiling + 1);
  Answers answers(geometry, kCeiling);
  ASSERT_TRUE(ask(snapshot.layer(0), story, every_token(0, kCeiling), engine, answers).ok());
  EXPECT_EQ(engine.done().dense_rows, kCeiling);
  EXPECT_EQ(sparse_rows(answers), 0);
  HostTensor output(DType::kF32, {kCeiling, 2, 8});
  std::vector<float> lse(2);
  for (std::int64_t visible = 1; visible <= kCeiling; ++visible) {
    const std::int64_t token = visible - 1;
    Tensor out = row_of(output.writable(), token);
    const Status status = dense_attend(geometry, visible, row_of(story.queries.view(), token),
                                       {story.keys.view(), story.values.view()}, {}, out, lse);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(std::memcmp(answers.lse.view().at(token), lse.data(), 8), 0) << visible;
  }
  EXPECT_TRUE(same_bits(answers.output.bytes(), output.bytes()));
}

TEST_P(DenseIdentity, RowsThatPlanHasScoredAreTheDenseRowToo) {
  // Groups are scored below the budget only where NaN ones are to be left out.
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kCeiling + 1);
  const Asked asked(story, every_token(2000, 51));
  Answers answers(story.geometry, 51);
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kExclude, answers.rows_from(0)).ok());
  EXPECT_GT(engine.done().groups_scored, 51 * 500);
  for (std::int64_t q = 0; q < 51; ++q) {
    std::vector<std::int32_t> dense(static_cast<std::size_t>(2001 + q));
    ASSERT_TRUE(dense_row(story.geometry, {kAnchor, 2001 + q}, dense).ok());
    EXPECT_TRUE(same_bytes<std::int32_t>(answers.row(q), dense)) << q;
  }
}

TEST_P(DenseIdentity, AtNoVisibleTokenBothGiveZerosAndMinusInfinity) {
  const Geometry& geometry = story.geometry;
  const Snapshot snapshot = held.snapshot();
  std::vector<float> scratch(static_cast<std::size_t>(attend_scratch_floats(geometry)));
  HostTensor sparse(DType::kF32, {2, 8});
  HostTensor dense(DType::kF32, {2, 8});
  sparse.fill(1.0f);
  dense.fill(2.0f);
  std::vector<float> sparse_lse(2);
  std::vector<float> dense_lse(2);
  const ConstTensor query = row_of(story.queries.view(), 0);
  ASSERT_TRUE(attend_row(snapshot.layer(0), {kAnchor, 0}, query, {}, {}, scratch, sparse.writable(), sparse_lse).ok());
  ASSERT_TRUE(
      dense_attend(geometry, 0, query, {story.keys.view(), story.values.view()}, {}, dense.writable(), dense_lse).ok());
  EXPECT_TRUE(same_bytes(sparse.bytes(), dense.bytes()));
  EXPECT_EQ(sparse.get(0), 0.0f);
  EXPECT_EQ(sparse_lse, dense_lse);
  EXPECT_EQ(sparse_lse[0], -kInfinity);
}

TEST_P(DenseIdentity, TheFirstRowPastTheCeilingDropsExactlyOneGroupWhateverTheScores) {
  Random random(113);
  std::set<std::int32_t> dropped_groups;
  for (int turn = 0; turn < 60; ++turn) {
    const Scores kind = kAllScores[turn % 7];
    const auto scores = make_scores(kind, 513, random);
    const auto row = planned(2052, scores);
    ASSERT_EQ(row.size(), 2048u);
    ASSERT_TRUE(check_row(story.geometry, {kAnchor, 2052}, row).ok());
    std::vector<std::int32_t> missing;
    for (std::int32_t t = 0, next = 0; t < 2052; ++t) {
      if (next < 2048 && row[static_cast<std::size_t>(next)] == kAnchor + t) {
        ++next;
      } else {
        missing.push_back(t);
      }
    }
    ASSERT_EQ(missing.size(), 4u);
    EXPECT_EQ(missing[0] % 4, 0);
    EXPECT_EQ(missing[3], missing[0] + 3);
    // The dropped one is the worst: none scores less, and of its equals it is the last.
    const float worst = scores[static_cast<std::size_t>(missing[0] / 4)];
    for (std::int32_t g = 0; g < 513; ++g) {
      const float score = scores[static_cast<std::size_t>(g)];
      EXPECT_TRUE(g <= missing[0] / 4 ? score >= worst : score > worst) << g << ": " << score << " beside " << worst;
    }
    dropped_groups.insert(missing[0] / 4);
  }
  EXPECT_GT(dropped_groups.size(), 5u) << "the scores decide which";
}

TEST_P(DenseIdentity, TheWholePathDropsOneGroupThereAndTheOracleRefuses) {
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kCeiling + 1);
  Answers answers(story.geometry, 1);
  ASSERT_TRUE(ask(snapshot.layer(0), story, every_token(kCeiling, 1), engine, answers).ok());
  EXPECT_EQ(answers.counts[0], 2048);
  EXPECT_EQ(engine.done().dense_rows, 0);
  EXPECT_EQ(engine.done().groups_selected, 512);
  EXPECT_EQ(engine.done().groups_scored, 513);
  HostTensor output(DType::kF32, {2, 8});
  std::vector<float> lse(2);
  EXPECT_TRUE(fails_with(dense_attend(story.geometry, kCeiling + 1, row_of(story.queries.view(), kCeiling),
                                      {story.keys.view(), story.values.view()}, {}, output.writable(), lse),
                         Code::kInvalidArgument, "visible"));
}

INSTANTIATE_TEST_SUITE_P(Storage, DenseIdentity, ::testing::Values(DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& dtype) { return std::string(dtype_name(dtype.param)); });

// The general form: any group size and budget.
TEST(DenseIdentityOfAnyShape, HoldsUpToTheCeilingAndEndsThere) {
  Random random(114);
  for (const std::int64_t group_tokens : {1, 2, 3, 7}) {
    for (const std::int64_t groups : {1, 2, 5}) {
      GeometryOptions options = small_path(group_tokens);
      options.budget_tokens = groups * group_tokens;
      const Story story(options, options.budget_tokens + group_tokens + 3, 115 + static_cast<std::uint64_t>(groups));
      const Answers answers = one_call(story);
      const std::int64_t ceiling = options.budget_tokens + group_tokens - 1;
      for (std::int64_t token = 0; token < story.tokens(); ++token) {
        const std::int64_t visible = token + 1;
        EXPECT_EQ(answers.counts[static_cast<std::size_t>(token)],
                  visible <= ceiling ? visible : options.budget_tokens + visible % group_tokens);
        if (visible > ceiling) continue;
        HostTensor output(DType::kF32, {4, 6});
        std::vector<float> lse(4);
        ASSERT_TRUE(dense_attend(story.geometry, visible, row_of(story.queries.view(), token),
                                 {story.keys.view(), story.values.view()}, {}, output.writable(), lse)
                        .ok());
        EXPECT_EQ(std::memcmp(answers.output.view().at(token), output.bytes().data(), output.bytes().size()), 0)
            << visible;
        EXPECT_TRUE(varies(output.bytes()));
      }
    }
  }
}

}  // namespace
}  // namespace seriatim
