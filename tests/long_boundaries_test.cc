// Rows at the visible counts where buffers, pages and integer widths change, for several group sizes, budgets and
// anchors.
#include <gtest/gtest.h>

#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::Spread;

constexpr std::int64_t kCounts[] = {8191, 8192, 8193, 16384, 32768, 65536, 262144};
constexpr std::int64_t kGroupTokens[] = {1, 2, 3, 4, 7};

// From one group to more than all of them.
std::vector<std::int64_t> budgets(std::int64_t r, std::int64_t n) {
  const std::int64_t complete = n / r;
  return {r, 2048 / r * r, (complete - 1) * r, complete * r, (complete + 5) * r};
}

std::vector<std::int64_t> anchors(std::int64_t n) { return {0, 1, 3, 1000003, Geometry::kPositions - n}; }

class LongBoundaries : public ::testing::TestWithParam<std::int64_t> {};

INSTANTIATE_TEST_SUITE_P(Visible, LongBoundaries, ::testing::ValuesIn(kCounts),
                         [](const auto& count) { return std::to_string(count.param); });

TEST_P(LongBoundaries, RowsAreWhatWalkingOverEveryTokenGives) {
  const std::int64_t n = GetParam();
  int compared = 0;
  for (const std::int64_t r : kGroupTokens) {
    for (const Spread spread : {Spread::kMostlyZero, Spread::kRising}) {
      const auto scores = test::scores_of(spread, n / r, 17);
      const auto best_first = test::ranking(scores);
      for (const std::int64_t budget : budgets(r, n)) {
        const Geometry geometry = test::row_geometry(r, budget);
        const auto planned = test::plan(geometry, {0, n}, scores);
        ASSERT_TRUE(planned.status.ok()) << planned.status.message();
        ASSERT_EQ(planned.row(), test::row_by_walking(r, budget, {0, n}, best_first))
            << "r " << r << " budget " << budget;
        ASSERT_EQ(planned.count, n <= budget + r - 1 ? n : budget + n % r);
        ASSERT_TRUE(check_row(geometry, {0, n}, planned.row()).ok());
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 50);
}

TEST_P(LongBoundaries, TheAnchorShiftsRowsAndNothingElse) {
  const std::int64_t n = GetParam();
  int compared = 0;
  for (const std::int64_t r : kGroupTokens) {
    const Geometry geometry = test::row_geometry(r, 2048 / r * r);
    const auto scores = test::scores_of(Spread::kMostlyZero, n / r, 23);
    const auto at_zero = test::plan(geometry, {0, n}, scores);
    ASSERT_TRUE(at_zero.status.ok());
    for (const std::int64_t anchor : anchors(n)) {
      const auto shifted = test::plan(geometry, {anchor, n}, scores);
      ASSERT_EQ(shifted.count, at_zero.count);
      for (std::size_t i = 0; i < shifted.storage.size(); ++i) {
        const bool padding = static_cast<std::int64_t>(i) >= shifted.count;
        ASSERT_EQ(shifted.storage[i], padding ? -1 : at_zero.storage[i] + anchor) << "r " << r << " anchor " << anchor;
      }
      ++compared;
    }
  }
  EXPECT_EQ(compared, 25);
}

}  // namespace
}  // namespace seriatim
