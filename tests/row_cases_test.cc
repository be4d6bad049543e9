// Symptoms that users of other engines reported in public, reduced to scores and rows. Each test names the kind of
// fault and where the symptom was described.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "base/half.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::kInfinity;
using test::kNaN;
using test::Planned;
using test::Witness;

using Positions = std::vector<std::int32_t>;

Positions plan_ok(const Geometry& geometry, VisibleRun run, const std::vector<float>& scores) {
  const Planned planned = test::plan(geometry, run, scores);
  EXPECT_TRUE(planned.status.ok()) << planned.status.message();
  return planned.row();
}

// Single tokens, as many as there are scores: the row is the set.
Positions tokens_kept(const std::vector<float>& scores, std::int64_t kept) {
  return plan_ok(test::row_geometry(1, kept), {0, static_cast<std::int64_t>(scores.size())}, scores);
}

Positions tokens_expected(const std::vector<float>& scores, std::int64_t kept) {
  return test::row_by_walking(1, kept, {0, static_cast<std::int64_t>(scores.size())}, test::ranking(scores));
}

// llama.cpp#28497: each group's score copied to its tokens and the top 2051 tokens taken kept 3 of 4 tokens of a group.
TEST(RowCases, ABudgetOfTokensNeverCutsAGroup) {
  for (const test::Spread spread : test::kSpreads) {
    const Positions row = plan_ok(test::qsa(), {0, 4096}, test::scores_of(spread, 1024, 28497));
    ASSERT_EQ(row.size(), 2048u);
    for (std::size_t i = 0; i < row.size(); ++i) {
      ASSERT_EQ(row[i], row[i - i % 4] + static_cast<std::int32_t>(i % 4));
      ASSERT_EQ(row[i - i % 4] % 4, 0);
    }
  }
}

// sglang#30512: with fewer winners than the budget, the equal rest came back as repeated or invalid indices.
TEST(RowCases, EqualZerosFillTheBudgetWithUniqueValidIds) {
  std::vector<float> scores(8320, 0.0f);
  for (std::size_t i = 0; i < 100; ++i) scores[8319 - 83 * i] = 1.0f + static_cast<float>(i);
  const Positions row = tokens_kept(scores, 2048);
  EXPECT_EQ(row.size(), 2048u);
  EXPECT_EQ(std::set<std::int32_t>(row.begin(), row.end()).size(), 2048u);
  Positions expected;
  std::int64_t zeros = 0;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > 0.0f || zeros++ < 1948) expected.push_back(static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(row, expected);
}

// tilelang#1351: a radix select that stops at the leading bits cannot tell such scores apart. Ten bits tell 1024 floats
// apart, so 32 blocks of 1024 share their top 22 bits within the block; a second set shares its top 17 bits altogether.
TEST(RowCases, ScoresThatDifferInTheirLowBitsOnlyAreToldApart) {
  for (const std::uint32_t stride : {1024u * 64u, 1024u}) {  // of one block to the next
    std::vector<float> scores;
    for (std::uint32_t i = 0; i < 32768; ++i) {
      const std::uint32_t mixed = (i * 20021u) % 32768u;
      scores.push_back(std::bit_cast<float>(0x3f800000u + mixed / 1024u * stride + mixed % 1024u));
    }
    ASSERT_EQ(std::set<float>(scores.begin(), scores.end()).size(), 32768u);
    for (const std::int64_t kept : {2048, 2049, 1500, 512}) {
      EXPECT_EQ(tokens_kept(scores, kept), tokens_expected(scores, kept)) << kept;
    }
  }
}

// sglang#31115: positives were lost to zeros when most scores are exactly 0.
TEST(RowCases, EveryPositiveScoreBeatsEveryZero) {
  std::vector<float> scores(8192, 0.0f);
  std::set<std::int32_t> positives;
  for (std::size_t i = 0; i < 500; ++i) {
    scores[i * 16 + 5] = std::bit_cast<float>(static_cast<std::uint32_t>(i + 1));  // subnormals: the least there is
    positives.insert(static_cast<std::int32_t>(i * 16 + 5));
  }
  const Positions row = tokens_kept(scores, 2048);
  EXPECT_EQ(row, tokens_expected(scores, 2048));
  std::size_t seen = 0;
  for (const std::int32_t position : row) seen += positives.count(position);
  EXPECT_EQ(seen, 500u);
}

// sglang#35257: a histogram over fp16 keys put the cut inside one bin and cut it anyhow.
TEST(RowCases, ScoresThatAreOneValueInF16AreToldApart) {
  std::vector<float> scores;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    scores.push_back(std::bit_cast<float>(0x3f800000u + (i * 2731u) % 4096u));
    ASSERT_EQ(to_f16(scores.back()), to_f16(1.0f));
  }
  for (const float outlier : {2.0f, 3.0f, -1.0f}) scores.push_back(outlier);
  EXPECT_EQ(tokens_kept(scores, 2048), tokens_expected(scores, 2048));
}

// vllm#49896, torch-xpu-ops#4839: NaN scores led to garbage indices.
TEST(RowCases, NanIsTheStatedErrorAndNeverAGarbageIndex) {
  const Geometry geometry = test::qsa();
  for (const float nan : {kNaN, -kNaN}) {
    for (const bool everywhere : {false, true}) {
      std::vector<float> scores(1024, everywhere ? nan : 1.0f);
      scores[700] = nan;
      const Planned refused = test::plan(geometry, {0, 4096}, scores, NanPolicy::kRefuse, 0x5a5a5a5a, 12);
      const std::int64_t first = everywhere ? 0 : 700;
      test::expect_refused(refused.status, Code::kNotANumber, "scores", {12, first},
                           "group " + std::to_string(first) + " of row 12");
      EXPECT_EQ(refused.storage, Positions(2051, 0x5a5a5a5a));
      const Planned excluded = test::plan(geometry, {0, 4096}, scores, NanPolicy::kExclude);
      ASSERT_TRUE(excluded.status.ok());
      EXPECT_EQ(excluded.count, everywhere ? 0 : 2048);
      EXPECT_EQ(std::count(excluded.storage.begin(), excluded.storage.end(), 2800), 0);
    }
  }
}

// The same, one row of a batch: the other rows are what they are alone.
TEST(RowCases, ANanInOneRowLeavesTheOtherRowsAlone) {
  const Geometry geometry = test::row_geometry(4, 16);
  std::vector<std::vector<float>> batch;
  for (std::uint64_t row = 0; row < 5; ++row) batch.push_back(test::scores_of(test::Spread::kUniform, 20, row));
  const auto clean = batch;
  batch[2][7] = kNaN;
  for (std::size_t row = 0; row < 5; ++row) {
    const Planned planned =
        test::plan(geometry, {0, 80}, batch[row], NanPolicy::kRefuse, -7, static_cast<std::int64_t>(row));
    EXPECT_EQ(planned.status.ok(), row != 2);
    EXPECT_EQ(planned.storage, row == 2 ? Positions(19, -7) : test::plan(geometry, {0, 80}, clean[row]).storage);
  }
}

// cccl#9470: keys turned to integers ordered -0 below +0, or came back with another sign.
TEST(RowCases, ZerosOfBothSignsAreEqualAndKeepTheirBits) {
  Witness<float> scores(4000, 0.0f);
  std::vector<float> mixed;
  for (std::size_t i = 0; i < 4000; ++i) mixed.push_back(i % 3 == 0 ? 0.0f : -0.0f);
  mixed[3999] = 1.0f;
  mixed[0] = -1.0f;
  scores.values = mixed;
  Positions expected = test::dense_row({1, 2047});
  expected.push_back(3999);
  EXPECT_EQ(tokens_kept(scores.values, 2048), expected);
  for (std::size_t i = 0; i < 4000; ++i) ASSERT_EQ(test::bits_of(scores.values[i]), test::bits_of(mixed[i]));
}

// onnxruntime#9843, flashinfer#4123: infinities were taken for padding, or padding for scores.
TEST(RowCases, InfinitiesAreScoresLikeAnyOther) {
  std::vector<float> many(5000, 0.0f);
  for (std::size_t i = 0; i < 3000; ++i) many[4999 - i] = kInfinity;
  EXPECT_EQ(tokens_kept(many, 2048), test::dense_row({2000, 2048}));
  for (const std::size_t finite : {0u, 1u, 2047u, 2048u}) {
    std::vector<float> scores(5000, -kInfinity);
    for (std::size_t i = 0; i < finite; ++i) scores[4000 - i] = -static_cast<float>(i);
    const Positions row = tokens_kept(scores, 2048);
    EXPECT_EQ(row.size(), 2048u);
    EXPECT_EQ(std::set<std::int32_t>(row.begin(), row.end()).size(), 2048u);
    EXPECT_EQ(row, tokens_expected(scores, 2048)) << finite;
  }
}

// sglang#30378: tiny and negative visible counts, as padded batches have them.
TEST(RowCases, TinyCountsGiveTheirTokensAndNegativeOnesAreRefused) {
  for (std::int64_t n = 0; n <= 5; ++n) {
    EXPECT_EQ(plan_ok(test::qsa(), {0, n}, std::vector<float>(static_cast<std::size_t>(n / 4))),
              test::dense_row({0, n}));
  }
  const Planned negative = test::plan(test::qsa(), {0, -1}, {}, NanPolicy::kRefuse, 0x5a5a5a5a, 4);
  test::expect_refused(negative.status, Code::kInvalidArgument, "visible", {4, -1}, "-1 tokens is negative");
}

// Quest#22: the last, incomplete group was lost when the count was at or just below the budget.
TEST(RowCases, EverythingVisibleIsReadAtAndJustBelowTheBudget) {
  for (const std::int64_t r : {3, 4, 7, 16}) {
    const std::int64_t budget = 2048 / r * r;
    for (std::int64_t n = budget - r - 1; n <= budget + r - 1; ++n) {
      const auto scores = test::scores_of(test::Spread::kInfinities, n / r, 22);
      EXPECT_EQ(plan_ok(test::row_geometry(r, budget), {0, n}, scores), test::dense_row({0, n}))
          << "r " << r << " n " << n;
    }
  }
}

// unslothai/llama.cpp#114: a context whose positions begin at 1,000,003 was grouped from position 0.
TEST(RowCases, GroupsCountFromTheFirstVisiblePosition) {
  std::vector<float> scores(600, 0.0f);
  scores[599] = 1.0f;
  const Positions row = plan_ok(test::row_geometry(4, 4), {1000003, 2400}, scores);
  EXPECT_EQ(row, test::dense_row({1000003 + 599 * 4, 4}));
}

// ggml#1367, llama.cpp#27752: top-k limited to 1024 entries, or to what fits a block's shared memory.
TEST(RowCases, AnyNumberOfGroupsCanBeSelectedFrom) {
  for (const std::int64_t groups : {1023, 1024, 1025, 65535, 65536}) {
    const auto scores = test::scores_of(test::Spread::kMostlyZero, groups, 1367);
    const Positions row = plan_ok(test::qsa(), {0, groups * 4}, scores);
    EXPECT_EQ(row, test::row_by_walking(4, 2048, {0, groups * 4}, test::ranking(scores))) << groups;
  }
}

// vllm#54873: a short context in a wide row was worked on at full width.
TEST(RowCases, AShortRowInWideStorageNeedsScratchForItsOwnGroupsOnly) {
  const Geometry geometry = test::qsa();
  EXPECT_EQ(plan_row_scratch_entries(geometry, 100), 50);  // 25 groups, all kept
  const Planned planned = test::plan(geometry, {0, 100}, std::vector<float>(25, 1.0f));
  EXPECT_EQ(planned.count, 100);
  EXPECT_EQ(planned.row(), test::dense_row({0, 100}));
  EXPECT_EQ(std::count(planned.storage.begin(), planned.storage.end(), -1), 1951);
}

// TensorRT-LLM#18585, transformers#45820: keys past the query were scored and, if good, chosen.
TEST(RowCases, AFutureGroupIsNeverChosenHoweverGoodItIs) {
  const Geometry geometry = test::row_geometry(4, 16);
  const auto scores = test::scores_of(test::Spread::kRising, 30, 0);  // the latest group is always the best
  for (std::int64_t n = 1; n <= 120; ++n) {
    const auto visible = std::vector<float>(scores.begin(), scores.begin() + n / 4);
    for (const std::int32_t position : plan_ok(geometry, {9, n}, visible)) ASSERT_LT(position, 9 + n);
    const Planned whole = test::plan(geometry, {9, n}, scores);
    EXPECT_EQ(whole.status.ok(), n == 120) << "scores of groups that are not visible are refused";
  }
  Positions row(19, -7);
  const auto future = expand_row(geometry, {9, 23}, Positions{2, 5}, row, 1);
  test::expect_refused(future.status(), Code::kInvalidArgument, "groups", {1, 1}, "entry 1 is 5, not in 0..4");
  EXPECT_EQ(row, Positions(19, -7));
  EXPECT_FALSE(check_ascending({9, 23}, Positions{9, 32}).ok());
}

}  // namespace
}  // namespace seriatim
