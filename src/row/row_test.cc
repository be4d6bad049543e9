#include "seriatim/row.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::expect_refused;
using test::Witness;

using Positions = std::vector<std::int32_t>;

constexpr std::int32_t kGarbage = 0x5a5a5a5a;

TEST(ExpandRow, GroupsBecomeTheirTokensThenTheTailThenPadding) {
  const Geometry geometry = test::row_geometry(3, 9);
  Positions row(13, kGarbage);  // two more than needed
  const auto count = expand_row(geometry, {10, 17}, Positions{1, 4}, row);
  ASSERT_TRUE(count.ok()) << count.status().message();
  EXPECT_EQ(*count, 8);
  EXPECT_EQ(row, (Positions{13, 14, 15, 22, 23, 24, 25, 26, -1, -1, -1, -1, -1}));
}

TEST(ExpandRow, NoGroupsLeaveTheTailAndNoTokensNothing) {
  const Geometry geometry = test::row_geometry(4, 8);
  Positions row(11, kGarbage);
  EXPECT_EQ(*expand_row(geometry, {5, 14}, {}, row), 2);
  EXPECT_EQ(row, (Positions{17, 18, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(*expand_row(geometry, {5, 0}, {}, row), 0);
  EXPECT_EQ(row, Positions(11, -1));
}

TEST(ExpandRow, ReachesTheLastPositionThereIs) {
  const Geometry geometry = test::row_geometry(4, 4);
  Positions row(7);
  const std::int64_t anchor = Geometry::kPositions - 6;
  EXPECT_EQ(*expand_row(geometry, {anchor, 6}, Positions{0}, row), 6);
  EXPECT_EQ(row[5], std::numeric_limits<std::int32_t>::max());
  EXPECT_EQ(row[6], -1);
}

class RowRefuses : public ::testing::Test {
 protected:
  void refuse_expand(VisibleRun run, const Positions& groups, std::string_view argument, std::int64_t index,
                     std::string_view words) {
    const auto count = expand_row(geometry_, run, groups, row_.values, 6);
    expect_refused(count.status(), Code::kInvalidArgument, argument, {6, index}, words);
    EXPECT_TRUE(row_.untouched());
  }
  void refuse_plan(VisibleRun run, const std::vector<float>& scores, Code code, std::string_view argument,
                   std::int64_t index, std::string_view words) {
    const auto count = plan_row(geometry_, run, scores, NanPolicy::kRefuse, scratch_, row_.values, 6);
    expect_refused(count.status(), code, argument, {6, index}, words);
    EXPECT_TRUE(row_.untouched());
  }

  const Geometry geometry_ = test::row_geometry(4, 8);
  Positions scratch_ = Positions(7, kGarbage);  // for 5 groups, 2 of them kept
  Witness<std::int32_t> row_{11, kGarbage};
};

TEST_F(RowRefuses, RunsThatAreNoRuns) {
  refuse_expand({-1, 4}, {}, "anchor", -1, "-1 is not in 0..2147483647 (row 6)");
  refuse_expand({0, -1}, {}, "visible", -1, "-1 tokens is negative");
  refuse_expand({Geometry::kPositions - 1, 2}, {}, "visible", -1, "pass the last position");
  refuse_plan({0, -5}, {}, Code::kInvalidArgument, "visible", -1, "-5 tokens is negative");
}

TEST_F(RowRefuses, GroupsOutsideTheCompleteOnes) {
  refuse_expand({0, 23}, {0, 5}, "groups", 1, "entry 1 is 5, not in 0..4 (query 6)");
  refuse_expand({0, 23}, {-1}, "groups", 0, "entry 0 is -1");
  refuse_expand({0, 3}, {0}, "groups", 0, "entry 0 is 0");
}

TEST_F(RowRefuses, GroupsOutOfOrderOrTwice) {
  refuse_expand({0, 23}, {3, 2}, "groups", 1, "entry 1 is 2, not above 3");
  refuse_expand({0, 23}, {3, 3}, "groups", 1, "entry 1 is 3, not above 3");
}

TEST_F(RowRefuses, MoreGroupsThanTheBudget) {
  refuse_expand({0, 23}, {0, 1, 2}, "groups", -1, "3 exceed the budget of 2");
}

TEST_F(RowRefuses, ARowThatIsTooSmall) {
  row_ = Witness<std::int32_t>(10, kGarbage);
  refuse_expand({0, 23}, {0}, "row", -1, "10 entries where 11 are needed (query 6)");
  refuse_plan({0, 23}, std::vector<float>(5), Code::kInvalidArgument, "row", -1, "10 entries where 11 are needed");
}

TEST_F(RowRefuses, ScoresForAnotherNumberOfGroups) {
  refuse_plan({0, 23}, std::vector<float>(6), Code::kInvalidArgument, "scores", -1, "6 entries for 5 groups (query 6)");
  refuse_plan({0, 23}, std::vector<float>(4), Code::kInvalidArgument, "scores", -1, "4 entries for 5 groups");
}

TEST_F(RowRefuses, ScratchThatIsTooSmall) {
  scratch_.resize(6);
  refuse_plan({0, 23}, std::vector<float>(5), Code::kInvalidArgument, "scratch", -1, "6 entries where 7 are needed");
}

TEST_F(RowRefuses, NanScoresByQueryAndGroup) {
  refuse_plan({0, 23}, {1.0f, 2.0f, 3.0f, test::kNaN, test::kNaN}, Code::kNotANumber, "scores", 3, "group 3 of row 6");
}

TEST(RowScratch, FollowsTheGroupsAndTheBudget) {
  const Geometry geometry = test::qsa();
  EXPECT_EQ(plan_row_scratch_entries(geometry, 3), 0);
  EXPECT_EQ(plan_row_scratch_entries(geometry, 100), 50);
  EXPECT_EQ(plan_row_scratch_entries(geometry, 262144), 65536 + 512);
}

TEST(CheckAscending, AdmitsAnyChronologicalRowInsideTheRun) {
  EXPECT_TRUE(check_ascending({10, 5}, Positions{10, 12, 14}).ok());
  EXPECT_TRUE(check_ascending({10, 5}, {}).ok());
  EXPECT_TRUE(check_ascending({10, 0}, {}).ok());
  const std::int32_t last = std::numeric_limits<std::int32_t>::max();
  EXPECT_TRUE(check_ascending({last, 1}, Positions{last}).ok());
}

TEST(CheckAscending, NamesTheFirstEntryThatDoesNotFollow) {
  expect_refused(check_ascending({0, 9}, Positions{0, 4, 3, 2}, 8), Code::kNotChronological, "row", {8, 2},
                 "entry 2 is 3, not after 4");
  expect_refused(check_ascending({0, 9}, Positions{5, 5}, 8), Code::kNotChronological, "row", {8, 1}, "entry 1 is 5");
}

TEST(CheckAscending, NamesTheFirstEntryOutsideTheRun) {
  for (const std::int32_t outside :
       {9, 15, -1, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()}) {
    expect_refused(check_ascending({10, 5}, Positions{10, outside}, 8), Code::kInvalidArgument, "row", {8, 1},
                   "entry 1 is " + std::to_string(outside) + ", outside the visible 10..14");
  }
}

class CheckRow : public ::testing::Test {
 protected:
  Status check(std::int64_t tokens, const Positions& row, bool exact_width = true) const {
    return check_row(geometry_, {100, tokens}, row, exact_width, 3);
  }
  void refuse(std::int64_t tokens, const Positions& row, std::int64_t index, std::string_view words,
              bool exact_width = true) const {
    expect_refused(check(tokens, row, exact_width), Code::kNotChronological, "row", {3, index}, words);
  }
  const Geometry geometry_ = test::row_geometry(3, 6);
};

TEST_F(CheckRow, AdmitsEveryPlannedRow) {
  int checked = 0;
  for (std::int64_t n = 0; n <= 40; ++n) {
    for (const test::Spread spread : test::kSpreads) {
      const auto planned = test::plan(geometry_, {100, n}, test::scores_of(spread, n / 3, 1));
      ASSERT_TRUE(check(n, planned.row()).ok()) << check(n, planned.row()).message();
      ++checked;
    }
  }
  EXPECT_EQ(checked, 246);
}

TEST_F(CheckRow, AGroupReadInPartIsNoRow) {
  refuse(15, {100, 101, 102, 106, 107, 109}, 5, "entry 5 breaks a group");
  refuse(15, {101, 102, 103, 106, 107, 108}, 0, "entry 0 breaks a group");
  refuse(15, {100, 101, 102, 106, 107}, 4, "the last group holds 2 of 3", false);
}

TEST_F(CheckRow, ATailThatIsMissingShortOrNotLastIsNoRow) {
  refuse(17, {100, 101, 102, 106, 107, 108}, 4, "the raw tail of 2 tokens");
  refuse(17, {100, 101, 102, 106, 107, 108, 115}, 5, "the raw tail of 2 tokens");
  refuse(17, {116}, 0, "the raw tail of 2 tokens");
  refuse(17, {115, 116, 100, 101, 102, 106, 107, 108}, 2, "not chronological");
  refuse(2, {}, 0, "the raw tail of 2 tokens");
}

TEST_F(CheckRow, AnotherWidthIsNoRowUnlessNanGroupsWereExcluded) {
  const Positions one_group{100, 101, 102, 115, 116};
  refuse(17, one_group, -1, "width 5 where 8 is due");
  EXPECT_TRUE(check(17, one_group, false).ok());
  EXPECT_TRUE(check(17, {115, 116}, false).ok());
  refuse(17, {100, 101, 102, 103, 104, 105, 106, 107, 108, 115, 116}, -1, "width 11", false);
  refuse(8, {100, 101, 102, 106, 107}, -1, "width 5 where 8 is due");
}

TEST_F(CheckRow, RunsAndEntriesAreCheckedFirst) {
  expect_refused(check_row(geometry_, {-1, 3}, {}, true, 3), Code::kInvalidArgument, "anchor", {3, -1}, "-1");
  expect_refused(check(6, {100, 101, 102, 103, 104, 106}), Code::kInvalidArgument, "row", {3, 5}, "entry 5 is 106");
}

// Every subset of ten tokens as a row: exactly the rows that some scores can plan are canonical.
TEST_F(CheckRow, AmongAllAscendingRowsExactlyThePlannableOnesPass) {
  std::set<Positions> plannable;
  for (std::size_t mask = 0; mask < 8; ++mask) {
    const std::vector<float> scores{(mask & 1u) != 0 ? 1.0f : 0.0f, (mask & 2u) != 0 ? 1.0f : 0.0f,
                                    (mask & 4u) != 0 ? 1.0f : 0.0f};
    plannable.insert(test::plan(geometry_, {100, 10}, scores).row());
  }
  EXPECT_EQ(plannable.size(), 3u);
  int passed = 0;
  for (std::size_t mask = 0; mask < 1024; ++mask) {
    Positions row;
    for (std::size_t token = 0; token < 10; ++token) {
      if ((mask >> token & 1u) != 0) row.push_back(static_cast<std::int32_t>(100 + token));
    }
    ASSERT_EQ(check(10, row).ok(), plannable.count(row) == 1) << ::testing::PrintToString(row);
    passed += check(10, row).ok() ? 1 : 0;
  }
  EXPECT_EQ(passed, 3);
}

}  // namespace
}  // namespace seriatim
