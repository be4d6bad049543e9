// Fourth promise: the n mod r newest tokens are always read, last, unscored. Looks at the end of the row alone.
#include <gtest/gtest.h>

#include "support/promises.hpp"

namespace seriatim {
namespace {

using test::Example;

void expect_tail(const Example& example) {
  const std::int64_t tail = example.run.tokens % example.geometry.group_tokens();
  ASSERT_GE(static_cast<std::int64_t>(example.row.size()), tail);
  for (std::int64_t i = 0; i < tail; ++i) {
    const std::size_t at = example.row.size() - static_cast<std::size_t>(tail - i);
    ASSERT_EQ(example.row[at], example.run.anchor + example.run.tokens - tail + i)
        << "r " << example.geometry.group_tokens() << " n " << example.run.tokens << ": "
        << ::testing::PrintToString(example.row);
  }
}

TEST(Tail, TheNewestTokensEndTheRowWhateverTheScores) {
  std::size_t with_tail = 0;
  for (const Example& example : test::sparse_examples()) {
    expect_tail(example);
    if (HasFatalFailure()) return;
    with_tail += example.run.tokens % example.geometry.group_tokens() != 0 ? 1u : 0u;
  }
  EXPECT_GT(with_tail, 1000u);
}

TEST(Tail, IsThereAtEveryVisibleCountOfQsa) {
  const Geometry geometry = test::qsa();
  std::size_t with_tail = 0;
  for (std::int64_t n = 0; n <= 2060; ++n) {
    const auto scores = test::scores_of(test::Spread::kFalling, n / 4, 1);
    expect_tail({geometry, {0, n}, scores, test::plan(geometry, {0, n}, scores).row()});
    if (HasFatalFailure()) return;
    with_tail += n % 4 != 0 ? 1u : 0u;
  }
  EXPECT_EQ(with_tail, 1545u);
}

TEST(Tail, IsAllThereIsBeforeTheFirstGroupCloses) {
  const Geometry geometry = test::row_geometry(7, 14);
  for (std::int64_t n = 1; n < 7; ++n) {
    EXPECT_EQ(test::plan(geometry, {100, n}, {}).row(), test::dense_row({100, n}));
  }
}

TEST(Tail, EndsWhenItsGroupCloses) {
  const Geometry geometry = test::row_geometry(4, 4);
  const std::vector<float> first_wins{1.0f, 0.0f, 0.0f};
  const auto open = test::plan(geometry, {0, 11}, std::span(first_wins).first(2)).row();
  expect_tail({geometry, {0, 11}, {}, open});
  const auto closed = test::plan(geometry, {0, 12}, first_wins).row();
  ASSERT_FALSE(closed.empty());
  EXPECT_LT(closed.back(), 4) << "a token that has completed a group is read only if it wins";
}

TEST(Tail, StaysWhenEveryGroupIsExcluded) {
  const Geometry geometry = test::row_geometry(4, 8);
  const std::vector<float> scores(5, test::kNaN);
  EXPECT_EQ(test::plan(geometry, {0, 23}, scores, NanPolicy::kExclude).row(), (std::vector<std::int32_t>{20, 21, 22}));
}

}  // namespace
}  // namespace seriatim
