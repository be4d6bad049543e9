// Fifth promise: up to B + r - 1 visible tokens the row is the dense causal row, byte for byte, whatever the scores;
// the first row that drops anything is that of B + r, and it drops exactly one group. Here the rows that plan_row
// makes; the whole path and its outputs are held against the dense oracle in dense_identity_test.cc.
#include <gtest/gtest.h>

#include <cstring>

#include "support/promises.hpp"

namespace seriatim {
namespace {

using test::Planned;
using test::Spread;

constexpr std::int64_t kCapacity = 2051;  // of QSA: 2048 + 4 - 1

// The dense causal row of `run` in storage of `capacity` entries, as memory.
std::vector<std::int32_t> dense_storage(VisibleRun run, std::int64_t capacity) {
  auto row = test::dense_row(run);
  row.resize(static_cast<std::size_t>(capacity), -1);
  return row;
}

bool same_bytes(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

class DenseIdentityRows : public ::testing::TestWithParam<Spread> {};

std::string name_of(const ::testing::TestParamInfo<Spread>& spread) {
  const char* names[] = {"uniform", "all_equal", "mostly_zero", "rising", "falling", "infinities"};
  return names[static_cast<std::size_t>(spread.param)];
}

INSTANTIATE_TEST_SUITE_P(Spreads, DenseIdentityRows, ::testing::ValuesIn(test::kSpreads), name_of);

TEST_P(DenseIdentityRows, EveryCountUpTo2051IsTheDenseRowByteForByte) {
  const Geometry geometry = test::qsa();
  ASSERT_EQ(geometry.row_capacity(), kCapacity);
  std::int64_t compared = 0;
  for (std::int64_t n = 0; n <= kCapacity; ++n) {
    const auto scores = test::scores_of(GetParam(), n / 4, static_cast<std::uint64_t>(n));
    for (const std::int64_t anchor : {std::int64_t{0}, std::int64_t{1000003}}) {
      const Planned planned = test::plan(geometry, {anchor, n}, scores);
      ASSERT_TRUE(planned.status.ok());
      ASSERT_EQ(planned.count, n);
      ASSERT_TRUE(same_bytes(planned.storage, dense_storage({anchor, n}, kCapacity)))
          << "n " << n << " anchor " << anchor;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * 2052);
}

TEST_P(DenseIdentityRows, WidthsPastTheBudgetAreTheBudgetAndTheTail) {
  const Geometry geometry = test::qsa();
  for (std::int64_t n = 2052; n <= 2060; ++n) {
    const auto scores = test::scores_of(GetParam(), n / 4, static_cast<std::uint64_t>(n));
    const Planned planned = test::plan(geometry, {0, n}, scores);
    ASSERT_EQ(planned.count, 2048 + n % 4) << n;
    ASSERT_EQ(planned.count, geometry.row_width(n)) << n;
    for (auto past = static_cast<std::size_t>(planned.count); past < planned.storage.size(); ++past) {
      ASSERT_EQ(planned.storage[past], -1) << "past the count, n " << n;
    }
  }
}

TEST_P(DenseIdentityRows, NothingDependsOnWhatStorageOrScratchHeld) {
  const Geometry geometry = test::qsa();
  for (const std::int64_t n : {0, 1, 3, 4, 5, 100, 2047, 2048, 2051, 2052, 2055, 5000}) {
    const auto scores = test::scores_of(GetParam(), n / 4, 9);
    const Planned first = test::plan(geometry, {0, n}, scores, NanPolicy::kRefuse, 0);
    for (const std::int32_t garbage : {-1, 1, 511, 0x7fffffff, -0x7fffffff - 1}) {
      const Planned again = test::plan(geometry, {0, n}, scores, NanPolicy::kRefuse, garbage);
      ASSERT_TRUE(again.status.ok());
      ASSERT_EQ(again.count, first.count);
      ASSERT_TRUE(same_bytes(again.storage, first.storage)) << "n " << n << " after " << garbage;
    }
  }
}

TEST(DenseIdentityRows, TheFirstRowThatDropsAnythingDropsExactlyTheWorstGroup) {
  const Geometry geometry = test::qsa();
  for (std::int32_t loser = 0; loser < 513; ++loser) {
    std::vector<float> scores(513, 1.0f);
    scores[static_cast<std::size_t>(loser)] = -1.0f;
    std::vector<std::int32_t> expected;
    for (std::int32_t token = 0; token < 2052; ++token) {
      if (token / 4 != loser) expected.push_back(token);
    }
    ASSERT_EQ(expected.size(), 2048u);
    ASSERT_EQ(test::plan(geometry, {0, 2052}, scores).row(), expected) << "loser " << loser;
  }
}

TEST(DenseIdentityRows, HoldsForEveryGroupSizeAndBudget) {
  std::int64_t dense = 0;
  std::int64_t sparse = 0;
  for (std::int64_t r = 1; r <= 9; ++r) {
    for (std::int64_t kept = 1; kept <= 6; ++kept) {
      const Geometry geometry = test::row_geometry(r, r * kept);
      for (std::int64_t n = 0; n <= r * kept + 2 * r; ++n) {
        for (const Spread spread : test::kSpreads) {
          const Planned planned = test::plan(geometry, {3, n}, test::scores_of(spread, n / r, 2));
          const bool whole = planned.row() == test::dense_row({3, n});
          ASSERT_EQ(whole, n <= r * kept + r - 1) << "r " << r << " kept " << kept << " n " << n;
          (whole ? dense : sparse) += 1;
        }
      }
    }
  }
  EXPECT_GT(dense, 5000);
  EXPECT_GT(sparse, 1000);
}

TEST(DenseIdentityRows, RepeatingAPlanNeverChangesARow) {
  const Geometry geometry = test::qsa();
  const auto scores = test::scores_of(Spread::kMostlyZero, 700, 4);
  std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, 2801)));
  std::vector<std::int32_t> storage(2051);
  const Planned first = test::plan(geometry, {0, 2801}, scores);
  for (int repeat = 0; repeat < 3; ++repeat) {  // in what the last one left behind
    ASSERT_TRUE(plan_row(geometry, {0, 2801}, scores, NanPolicy::kRefuse, scratch, storage).ok());
    ASSERT_TRUE(same_bytes(storage, first.storage));
  }
}

}  // namespace
}  // namespace seriatim
