// A row is exact, tied, near or wrong, in that order, and a wrong one says where.
#include "replay/verdict.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "seriatim/row.hpp"

namespace seriatim {
namespace {

class Verdict : public testing::Test {
 protected:
  Verdict() : geometry_(*Geometry::admit(options())), row_(static_cast<std::size_t>(geometry_.row_capacity())) {}

  static GeometryOptions options() {
    GeometryOptions o;
    o.group_tokens = 2;
    o.budget_tokens = 4;  // two groups
    return o;
  }

  std::vector<std::int32_t> ours(const std::vector<float>& scores, VisibleRun run) {
    std::vector<std::int32_t> scratch(64);
    const auto count = plan_row(geometry_, run, scores, NanPolicy::kRefuse, scratch, row_);
    EXPECT_TRUE(count.ok());
    return {row_.begin(), row_.begin() + static_cast<std::ptrdiff_t>(*count)};
  }

  RowVerdict judge(const std::vector<float>& scores, VisibleRun run, const std::vector<std::int32_t>& expected,
                   double margin = 1e-3) {
    return judge_row(geometry_, run, ours(scores, run), expected, scores, margin);
  }

  Geometry geometry_;
  std::vector<std::int32_t> row_;
};

constexpr VisibleRun kRun{10, 9};  // groups at 10, 12, 14, 16 and a tail at 18

TEST_F(Verdict, TheSameTokensAreExact) {
  const RowVerdict v = judge({4, 3, 2, 1}, kRun, {10, 11, 12, 13, 18});
  EXPECT_EQ(v.agreement, Agreement::kExact);
}

TEST_F(Verdict, AnotherGroupOfTheCutsScoreIsATie) {
  const RowVerdict v = judge({4, 0, 0, 0}, kRun, {10, 11, 16, 17, 18});
  EXPECT_EQ(v.agreement, Agreement::kTie);
  EXPECT_EQ(v.margin, 0.0);
}

TEST_F(Verdict, ZerosOfBothSignsAreEqual) {
  EXPECT_EQ(judge({4, 0.0f, -0.0f, -1}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kTie);
}

TEST_F(Verdict, AGroupWithinTheMarginIsNearAndShowsIt) {
  const RowVerdict v = judge({4, 1.0f, 0.9995f, 0}, kRun, {10, 11, 14, 15, 18});
  EXPECT_EQ(v.agreement, Agreement::kNear);
  EXPECT_NEAR(v.margin, 5e-4, 1e-6);
}

TEST_F(Verdict, TheMarginIsRelativeToTheLargerScore) {
  EXPECT_EQ(judge({4000, 1000.0f, 999.5f, 0}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kNear);
  EXPECT_EQ(judge({4e-3f, 1e-3f, 0.9995e-3f, 0}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kNear);
  EXPECT_EQ(judge({4e-3f, 1e-3f, 0.5e-3f, 0}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kWrong);
}

TEST_F(Verdict, AWorseGroupIsWrongAndNamed) {
  const RowVerdict v = judge({4, 3, 2, 1}, kRun, {10, 11, 16, 17, 18});
  EXPECT_EQ(v.agreement, Agreement::kWrong);
  EXPECT_EQ(v.group, 3) << "group 1, left out, is the cut itself; group 3 is beyond it";
  EXPECT_NE(v.reason.find("group 3"), std::string::npos) << v.reason;
}

TEST_F(Verdict, AnInfiniteCutIsOnlyMatchedByItself) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(judge({inf, inf, inf, 1}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kTie);
  EXPECT_EQ(judge({inf, inf, 1, 1}, kRun, {10, 11, 14, 15, 18}).agreement, Agreement::kWrong);
}

TEST_F(Verdict, AMalformedRowIsWrongWhateverTheScores) {
  const std::vector<float> ties(4, 0.0f);
  for (const std::vector<std::int32_t>& bad :
       std::vector<std::vector<std::int32_t>>{{10, 11, 12, 18},              // half a group
                                              {10, 11, 12, 13},              // no tail
                                              {18, 10, 11, 12, 13},          // tail first
                                              {12, 13, 10, 11, 18},          // rank order
                                              {10, 11, 18},                  // too narrow
                                              {10, 11, 12, 13, 19},          // the future
                                              {9, 10, 12, 13, 18},           // before the anchor
                                              {10, 11, 12, 13, 14, 15, 18},  // past the budget
                                              {}}) {
    const RowVerdict v = judge(ties, kRun, bad);
    EXPECT_EQ(v.agreement, Agreement::kWrong);
    EXPECT_FALSE(v.reason.empty());
  }
}

TEST(LivePart, EndsAtTheFirstPadding) {
  const std::vector<std::int32_t> row{3, 4, -1, 7};
  EXPECT_EQ(live_part(row).size(), 2u);
  EXPECT_EQ(live_part(std::vector<std::int32_t>{-1}).size(), 0u);
  EXPECT_EQ(live_part(std::vector<std::int32_t>{1, 2}).size(), 2u);
}

}  // namespace
}  // namespace seriatim
