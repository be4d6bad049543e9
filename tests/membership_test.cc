// First promise: scores choose the set, the best groups under (score descending, position ascending), and nothing else.
// Looks at which groups a row touches; blind to order, to how much of a group is read, and to the tail.
#include <gtest/gtest.h>

#include "support/promises.hpp"

namespace seriatim {
namespace {

using test::Example;
using test::kInfinity;

Example example_of(const Geometry& geometry, VisibleRun run, std::vector<float> scores) {
  const test::Planned planned = test::plan(geometry, run, scores);
  EXPECT_TRUE(planned.status.ok()) << planned.status.message();
  return {geometry, run, std::move(scores), planned.row()};
}

TEST(Membership, TheBestGroupsAreReadAndNoOthers) {
  std::size_t dropped = 0;
  for (const Example& example : test::sparse_examples()) {
    const auto touched = test::groups_touched(example);
    ASSERT_EQ(touched, test::best_groups(example))
        << "r " << example.geometry.group_tokens() << " n " << example.run.tokens;
    dropped += static_cast<std::size_t>(example.complete()) - touched.size();
  }
  EXPECT_GT(dropped, 10000u);
}

TEST(Membership, EqualScoresPreferTheEarlierGroup) {
  for (const float equal : {0.0f, -0.0f, 1.0f, -kInfinity, kInfinity}) {
    const Example example = example_of(test::row_geometry(4, 12), {0, 40}, std::vector<float>(10, equal));
    EXPECT_EQ(test::groups_touched(example), (std::set<std::int64_t>{0, 1, 2})) << equal;
  }
}

// Every arrangement of winners, equals at the cut and losers over eight groups, both zeros among the equals.
TEST(Membership, ATieAcrossTheCutGoesToTheEarlierGroupsInEveryArrangement) {
  const Geometry geometry = test::row_geometry(2, 8);
  std::int64_t ties = 0;
  for (std::size_t code = 0; code < 65536; ++code) {
    const float letters[] = {-1.0f, 0.0f, -0.0f, 1.0f};
    std::vector<float> scores;
    for (std::size_t g = 0; g < 8; ++g) scores.push_back(letters[(code >> (2 * g)) & 3u]);
    const Example example = example_of(geometry, {5, 17}, scores);
    ASSERT_EQ(test::groups_touched(example), test::best_groups(example)) << ::testing::PrintToString(scores);
    const auto best_first = test::ranking(scores);
    ties += scores[static_cast<std::size_t>(best_first[3])] == scores[static_cast<std::size_t>(best_first[4])] ? 1 : 0;
  }
  EXPECT_GT(ties, 20000);
}

TEST(Membership, NoGroupIsForcedIn) {
  const Geometry geometry = test::qsa();
  std::vector<float> scores(600, 1.0f);
  scores.front() = 0.0f;  // the oldest group and the one just completed lose
  scores.back() = 0.0f;
  const auto touched = test::groups_touched(example_of(geometry, {0, 2400}, scores));
  EXPECT_EQ(touched.size(), 512u);
  EXPECT_EQ(touched.count(0), 0u);
  EXPECT_EQ(touched.count(599), 0u);
}

TEST(Membership, ALargerBudgetKeepsWhatASmallerOneChose) {
  std::size_t compared = 0;
  for (const test::Spread spread : test::kSpreads) {
    const auto scores = test::scores_of(spread, 90, 11);
    std::set<std::int64_t> smaller;
    for (std::int64_t kept = 1; kept <= 91; ++kept) {
      const auto larger = test::groups_touched(example_of(test::row_geometry(3, 3 * kept), {0, 271}, scores));
      ASSERT_EQ(static_cast<std::int64_t>(larger.size()), std::min<std::int64_t>(kept, 90));
      ASSERT_TRUE(std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end()));
      smaller = larger;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 6u * 91u);
}

TEST(Membership, AnExcludedNanGroupIsNeverReadAndTheOthersAreChosenAsIfItWereNotThere) {
  const Geometry geometry = test::row_geometry(4, 16);
  const VisibleRun run{0, 41};
  std::size_t compared = 0;
  for (std::size_t mask = 0; mask < 1024; ++mask) {
    auto scores = test::scores_of(test::Spread::kMostlyZero, 10, mask);
    std::set<std::int64_t> expected;
    for (const std::int64_t group : test::ranking(scores)) {
      const bool nan = (mask >> group & 1u) != 0;
      if (nan) scores[static_cast<std::size_t>(group)] = test::kNaN;
      if (!nan && expected.size() < 4) expected.insert(group);
    }
    const test::Planned planned = test::plan(geometry, run, scores, NanPolicy::kExclude);
    ASSERT_TRUE(planned.status.ok());
    ASSERT_EQ(test::groups_touched({geometry, run, scores, planned.row()}), expected) << mask;
    ++compared;
  }
  EXPECT_EQ(compared, 1024u);
}

}  // namespace
}  // namespace seriatim
