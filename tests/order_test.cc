// Second promise: time chooses the order. Looks at each entry against the one before; blind to which entries there are.
#include <gtest/gtest.h>

#include "support/promises.hpp"

namespace seriatim {
namespace {

using test::Example;

std::int64_t steps_back(const std::vector<std::int32_t>& row) {
  std::int64_t steps = 0;
  for (std::size_t i = 1; i < row.size(); ++i) steps += row[i] <= row[i - 1] ? 1 : 0;
  return steps;
}

TEST(Order, EveryEntryIsLaterThanTheOneBefore) {
  std::size_t entries = 0;
  for (const Example& example : test::sparse_examples()) {
    ASSERT_EQ(steps_back(example.row), 0) << "r " << example.geometry.group_tokens() << " n " << example.run.tokens
                                          << ": " << ::testing::PrintToString(example.row);
    entries += example.row.size();
  }
  EXPECT_GT(entries, 100000u);
}

TEST(Order, TheBestGroupComesWhereItsTimeIsAndNotFirst) {
  const Geometry geometry = test::row_geometry(2, 6);
  const std::vector<float> rising{0.0f, 1.0f, 2.0f, 3.0f, 4.0f};
  EXPECT_EQ(test::plan(geometry, {0, 10}, rising).row(), (std::vector<std::int32_t>{4, 5, 6, 7, 8, 9}));
  const std::vector<float> mixed{5.0f, -1.0f, 9.0f, -2.0f, 7.0f};
  EXPECT_EQ(test::plan(geometry, {0, 10}, mixed).row(), (std::vector<std::int32_t>{0, 1, 4, 5, 8, 9}));
}

// All 120 rank orders of five groups, all kept: scores may not show in the row at all.
TEST(Order, NoRankOrderOfTheScoresShowsInTheRow) {
  const Geometry geometry = test::row_geometry(3, 15);
  std::vector<float> scores{1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
  int permutations = 0;
  do {
    ASSERT_EQ(steps_back(test::plan(geometry, {7, 17}, scores).row()), 0) << ::testing::PrintToString(scores);
    ++permutations;
  } while (std::next_permutation(scores.begin(), scores.end()));
  EXPECT_EQ(permutations, 120);
}

TEST(Order, RowsThatNanGroupsMadeShorterAreChronologicalToo) {
  const Geometry geometry = test::row_geometry(4, 40);
  auto scores = test::scores_of(test::Spread::kUniform, 30, 5);
  for (std::size_t g = 0; g < 30; g += 2) scores[g] = test::kNaN;
  scores[5] = scores[7] = scores[9] = scores[11] = scores[13] = scores[15] = test::kNaN;
  const test::Planned planned = test::plan(geometry, {0, 123}, scores, NanPolicy::kExclude);
  ASSERT_GT(planned.count, 30);
  EXPECT_EQ(steps_back(planned.row()), 0);
}

}  // namespace
}  // namespace seriatim
