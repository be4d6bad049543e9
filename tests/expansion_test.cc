// Third promise: a chosen group is read whole, its r tokens, and none is read in part. Counts the tokens of each group;
// blind to which groups were chosen, to order, and to the tail.
#include <gtest/gtest.h>

#include "support/promises.hpp"

namespace seriatim {
namespace {

using test::Example;

// Tokens read of each group that is touched at all.
std::map<std::int64_t, std::set<std::int32_t>> tokens_by_group(const Example& example) {
  std::map<std::int64_t, std::set<std::int32_t>> tokens;
  for (const std::int32_t position : example.row) {
    if (position < example.first_of_tail()) tokens[example.group_of(position)].insert(position);
  }
  return tokens;
}

TEST(Expansion, EveryGroupIsReadWholeOrNotAtAll) {
  std::size_t whole = 0;
  for (const Example& example : test::sparse_examples()) {
    const std::int64_t r = example.geometry.group_tokens();
    for (const auto& [group, tokens] : tokens_by_group(example)) {
      ASSERT_EQ(static_cast<std::int64_t>(tokens.size()), r)
          << "group " << group << " r " << r << " n " << example.run.tokens;
      ASSERT_EQ(*tokens.begin(), example.run.anchor + group * r);
      ++whole;
    }
  }
  EXPECT_GT(whole, 20000u);
}

TEST(Expansion, NoTokenIsReadTwice) {
  for (const Example& example : test::sparse_examples()) {
    const std::set<std::int32_t> distinct(example.row.begin(), example.row.end());
    ASSERT_EQ(distinct.size(), example.row.size())
        << "r " << example.geometry.group_tokens() << " n " << example.run.tokens;
  }
}

TEST(Expansion, TheBudgetCountsGroupsAndTheTailComesOnTop) {
  std::size_t compared = 0;
  for (const Example& example : test::sparse_examples()) {
    const std::int64_t budget = example.geometry.budget_tokens();
    std::int64_t grouped = 0;
    for (const auto& [group, tokens] : tokens_by_group(example)) grouped += static_cast<std::int64_t>(tokens.size());
    ASSERT_EQ(grouped, budget) << "r " << example.geometry.group_tokens() << " n " << example.run.tokens;
    ++compared;
  }
  EXPECT_GT(compared, 1000u);
}

TEST(Expansion, EveryGroupThatNanExcludesBeyondTheBudgetMakesTheRowAWholeGroupShorter) {
  const Geometry geometry = test::row_geometry(4, 16);
  for (std::size_t numbers = 0; numbers <= 10; ++numbers) {
    std::vector<float> scores(10, test::kNaN);
    for (std::size_t i = 0; i < numbers; ++i) scores[(7 * i) % 10] = static_cast<float>(i);
    const test::Planned planned = test::plan(geometry, {0, 41}, scores, NanPolicy::kExclude);
    EXPECT_EQ(planned.count, static_cast<std::int64_t>(std::min<std::size_t>(numbers, 4)) * 4 + 1) << numbers;
  }
}

TEST(Expansion, GroupsCountFromTheAnchorAndNotFromPositionZero) {
  const Geometry geometry = test::row_geometry(4, 4);
  for (const std::int32_t anchor : {0, 1, 2, 3, 1000003}) {
    const test::Planned planned = test::plan(geometry, {anchor, 12}, std::vector<float>{0.0f, 1.0f, 0.0f});
    EXPECT_EQ(planned.row(), (std::vector<std::int32_t>{anchor + 4, anchor + 5, anchor + 6, anchor + 7}));
  }
}

}  // namespace
}  // namespace seriatim
