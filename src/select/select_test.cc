#include "seriatim/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "select/select_kernels.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::expect_refused;
using test::kInfinity;
using test::kNaN;
using test::Witness;

using Groups = std::vector<std::int32_t>;

constexpr std::int32_t kGarbage = 0x5a5a5a5a;

// Selects with scratch and storage of exactly the size that is asked for.
Groups select_by(Kernels kernels, const std::vector<float>& scores, std::int64_t keep, NanPolicy nan) {
  const auto groups = static_cast<std::int64_t>(scores.size());
  Groups scratch(static_cast<std::size_t>(select_scratch_entries(groups)), kGarbage);
  Groups chosen(static_cast<std::size_t>(std::min(keep, groups)), kGarbage);
  const auto count = select_with(kernels, scores, keep, nan, scratch, chosen);
  EXPECT_TRUE(count.ok()) << count.status().message();
  chosen.resize(count.ok() ? static_cast<std::size_t>(*count) : 0);
  return chosen;
}

// What every kernel chooses.
Groups select(const std::vector<float>& scores, std::int64_t keep, NanPolicy nan = NanPolicy::kRefuse) {
  static const std::vector<Kernels> all = Kernels::available();
  const Groups chosen = select_by(all.front(), scores, keep, nan);
  for (std::size_t i = 1; i < all.size(); ++i) EXPECT_EQ(select_by(all[i], scores, keep, nan), chosen) << all[i].name();
  return chosen;
}

// A letter of a small alphabet: a score and its level. Both zeros have one level; no float is compared.
struct Letter {
  float score;
  int level;
};

// The definition written in another way: a group is chosen if fewer than `keep` groups beat it.
Groups chosen_by_counting(const std::vector<Letter>& word, std::int64_t keep) {
  Groups chosen;
  for (std::size_t g = 0; g < word.size(); ++g) {
    std::int64_t beaten_by = 0;
    for (std::size_t rival = 0; rival < word.size(); ++rival) {
      const bool higher = word[rival].level > word[g].level;
      const bool earlier_equal = word[rival].level == word[g].level && rival < g;
      beaten_by += higher || earlier_equal ? 1 : 0;
    }
    if (beaten_by < keep) chosen.push_back(static_cast<std::int32_t>(g));
  }
  return chosen;
}

bool includes(const Groups& larger, const Groups& smaller) {
  return std::includes(larger.begin(), larger.end(), smaller.begin(), smaller.end());
}

// Every word of `length` over `alphabet`, every budget from none to more than all: the set is the counted one, and the
// best k are among the best k + 1. Gives how many selections were compared.
std::int64_t check_every_word(const std::vector<Letter>& alphabet, std::size_t length) {
  std::vector<std::size_t> digits(length, 0);
  std::vector<Letter> word(length, alphabet[0]);
  std::vector<float> scores(length);
  std::int64_t compared = 0;
  while (true) {
    for (std::size_t i = 0; i < length; ++i) word[i] = alphabet[digits[i]];
    for (std::size_t i = 0; i < length; ++i) scores[i] = word[i].score;
    Groups previous;
    for (std::int64_t keep = 0; keep <= static_cast<std::int64_t>(length) + 1; ++keep) {
      const Groups chosen = select(scores, keep);
      if (chosen != chosen_by_counting(word, keep) || !includes(chosen, previous)) {
        ADD_FAILURE() << ::testing::PrintToString(scores) << " keeping " << keep << " gave "
                      << ::testing::PrintToString(chosen) << " after " << ::testing::PrintToString(previous);
        return compared;
      }
      previous = chosen;
      ++compared;
    }
    std::size_t place = 0;
    while (place < length && ++digits[place] == alphabet.size()) digits[place++] = 0;
    if (place == length) return compared;
  }
}

const std::vector<Letter> kSix{{-kInfinity, 0}, {-1.5f, 1}, {-0.0f, 2}, {0.0f, 2}, {3.0f, 3}, {kInfinity, 4}};
const std::vector<Letter> kFour{{-kInfinity, 0}, {-0.0f, 1}, {0.0f, 1}, {kInfinity, 2}};
const std::vector<Letter> kNeighbours{{std::bit_cast<float>(0x3f800000u), 0},
                                      {std::bit_cast<float>(0x3f800001u), 1},
                                      {std::bit_cast<float>(0x3f800002u), 2}};

TEST(Select, EveryWordOfSixLettersUpToSixGroupsAndEveryBudget) {
  std::int64_t compared = 0;
  for (std::size_t length = 1; length <= 6; ++length) compared += check_every_word(kSix, length);
  EXPECT_EQ(compared, 6 * 3 + 36 * 4 + 216 * 5 + 1296 * 6 + 7776 * 7 + 46656 * 8);
}

TEST(Select, EveryWordOfFourLettersOfEightGroupsAndEveryBudget) {
  EXPECT_EQ(check_every_word(kFour, 7) + check_every_word(kFour, 8), 16384 * 9 + 65536 * 10);
}

TEST(Select, EveryArrangementOfAboveAtAndBelowTheCutForNineGroups) {
  EXPECT_EQ(check_every_word(kNeighbours, 9), 19683 * 11);
}

TEST(Select, SubnormalsAndTheLargestFloatsAreOrderedToo) {
  const std::vector<Letter> extremes{{std::numeric_limits<float>::lowest(), 0},
                                     {-std::numeric_limits<float>::denorm_min(), 1},
                                     {0.0f, 2},
                                     {std::numeric_limits<float>::denorm_min(), 3},
                                     {std::numeric_limits<float>::max(), 4}};
  EXPECT_EQ(check_every_word(extremes, 5), 3125 * 7);
}

TEST(Select, EqualScoresPreferTheEarlierGroup) {
  for (const float equal : {0.0f, -0.0f, 7.0f, kInfinity, -kInfinity}) {
    EXPECT_EQ(select(std::vector<float>(100, equal), 3), (Groups{0, 1, 2}));
  }
}

TEST(Select, LargeInputsAgreeWithAFullSort) {
  std::int64_t compared = 0;
  for (const test::Spread spread : test::kSpreads) {
    for (const std::int64_t groups : {1000, 4099}) {
      const auto scores = test::scores_of(spread, groups, 7);
      const auto best_first = test::ranking(scores);
      for (const std::int64_t keep :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{512}, groups - 1, groups, groups + 1}) {
        Groups expected(best_first.begin(), best_first.begin() + std::min(keep, groups));
        std::sort(expected.begin(), expected.end());
        ASSERT_EQ(select(scores, keep), expected) << "spread " << static_cast<int>(spread) << " keep " << keep;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 72);
}

TEST(Select, NoGroupsGiveNoneAndAHugeBudgetGivesAll) {
  EXPECT_EQ(select({}, 0), Groups{});
  EXPECT_EQ(select({}, 512), Groups{});
  EXPECT_EQ(select({3.0f, 1.0f, 2.0f}, std::numeric_limits<std::int64_t>::max()), (Groups{0, 1, 2}));
}

TEST(Select, ScoresAreNotWrittenAndWhatLiesPastTheCountStays) {
  Witness<float> scores(6, -0.0f);
  scores.values = {-0.0f, 0.0f, kInfinity, -0.0f, -1.0f, 0.0f};
  const Witness<float> before = scores;
  Groups scratch(6);
  Groups chosen(9, kGarbage);
  const auto count = select_groups(scores.values, 3, NanPolicy::kRefuse, scratch, chosen);
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 3);
  EXPECT_EQ(chosen, (Groups{0, 1, 2, kGarbage, kGarbage, kGarbage, kGarbage, kGarbage, kGarbage}));
  for (std::size_t g = 0; g < 6; ++g) EXPECT_EQ(test::bits_of(scores.values[g]), test::bits_of(before.values[g])) << g;
}

TEST(Select, TheChosenScoresStandBesideTheirGroups) {
  const std::vector<float> scores{1.0f, -0.0f, kNaN, 5.0f, 0.0f, -kInfinity, 5.0f};
  Groups scratch(scores.size());
  Groups chosen(4, kGarbage);
  std::vector<float> beside(5, 77.0f);
  const auto count = select_groups(scores, 4, NanPolicy::kExclude, scratch, chosen, -1, beside);
  ASSERT_TRUE(count.ok() && *count == 4);
  EXPECT_EQ(chosen, (Groups{0, 1, 3, 6}));
  EXPECT_EQ(beside, (std::vector<float>{1.0f, -0.0f, 5.0f, 5.0f, 77.0f}));
  EXPECT_TRUE(std::signbit(beside[1])) << "the score itself, not one that compares equal";

  std::fill(beside.begin(), beside.end(), 77.0f);
  const auto small = select_groups(scores, 4, NanPolicy::kExclude, scratch, chosen, 9, std::span(beside).first(3));
  EXPECT_EQ(small.status().argument(), "chosen_scores");
  EXPECT_EQ(small.status().place().row, 9);
  EXPECT_FALSE(select_groups(scores, 4, NanPolicy::kRefuse, scratch, chosen, -1, beside).ok());
  EXPECT_EQ(beside, std::vector<float>(5, 77.0f));
}

TEST(Select, NothingDependsOnWhatScratchAndStorageHeld) {
  const auto scores = test::scores_of(test::Spread::kMostlyZero, 300, 3);
  std::vector<Groups> seen;
  for (const std::int32_t garbage : {0, -1, 299, std::numeric_limits<std::int32_t>::max()}) {
    Groups scratch(500, garbage);
    Groups chosen(40, garbage);
    const auto count = select_groups(scores, 40, NanPolicy::kRefuse, scratch, chosen);
    ASSERT_TRUE(count.ok());
    seen.push_back(chosen);
  }
  ASSERT_EQ(seen.size(), 4u);
  for (const Groups& chosen : seen) EXPECT_EQ(chosen, seen.front());
}

TEST(SelectNan, IsRefusedWhereverItStandsByRowAndGroup) {
  for (const float nan : {kNaN, -kNaN, std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)}) {
    for (std::size_t at = 0; at < 9; ++at) {
      for (const std::int64_t keep : {0, 1, 9}) {
        std::vector<float> scores(9, 1.0f);
        scores[8] = nan;  // the first one is named
        scores[at] = nan;
        Groups scratch(9);
        Witness<std::int32_t> chosen(9, kGarbage);
        const auto count = select_groups(scores, keep, NanPolicy::kRefuse, scratch, chosen.values, 41);
        const auto group = static_cast<std::int64_t>(at);
        expect_refused(count.status(), Code::kNotANumber, "scores", {41, group},
                       "group " + std::to_string(at) + " of row 41");
        EXPECT_TRUE(chosen.untouched());
      }
    }
  }
}

// Exhaustive with NaN as a letter: excluded groups are never chosen, the rest are chosen as if alone.
TEST(SelectNan, ExcludedGroupsLeaveTheOthersAsIfAlone) {
  const std::vector<Letter> letters{{-1.0f, 0}, {0.0f, 1}, {2.0f, 2}, {kNaN, -1}, {-kNaN, -1}};
  std::int64_t shorter = 0;
  std::int64_t compared = 0;
  for (std::size_t code = 0; code < 3125; ++code) {
    std::vector<float> scores;
    std::vector<Letter> numbers;
    Groups places;
    for (std::size_t g = 0, rest = code; g < 5; ++g, rest /= 5) {
      scores.push_back(letters[rest % 5].score);
      if (letters[rest % 5].level < 0) continue;
      numbers.push_back(letters[rest % 5]);
      places.push_back(static_cast<std::int32_t>(g));
    }
    for (std::int64_t keep = 0; keep <= 5; ++keep) {
      Groups expected;
      for (const std::int32_t g : chosen_by_counting(numbers, keep))
        expected.push_back(places[static_cast<std::size_t>(g)]);
      ASSERT_EQ(select(scores, keep, NanPolicy::kExclude), expected) << ::testing::PrintToString(scores) << keep;
      shorter += static_cast<std::int64_t>(expected.size()) < keep ? 1 : 0;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 3125 * 6);
  EXPECT_GT(shorter, 1000);
}

class SelectRefuses : public ::testing::Test {
 protected:
  void refuse(std::int64_t keep, std::string_view argument, std::string_view words) {
    const auto count = select_groups(scores_, keep, NanPolicy::kRefuse, scratch_, chosen_.values, 5);
    expect_refused(count.status(), Code::kInvalidArgument, argument, {5, -1}, words);
    EXPECT_TRUE(chosen_.untouched());
  }
  std::span<const float> scores_ = numbers_;
  Groups scratch_ = Groups(4);
  Witness<std::int32_t> chosen_{3, kGarbage};

 private:
  static constexpr float numbers_[4] = {1.0f, 2.0f, 3.0f, 4.0f};
};

TEST_F(SelectRefuses, ANegativeBudget) {
  refuse(-1, "keep", "-1 is negative");
  refuse(std::numeric_limits<std::int64_t>::min(), "keep", "is negative");
}

TEST_F(SelectRefuses, StorageThatIsTooSmall) {
  refuse(4, "chosen", "3 entries for 4 groups");
  refuse(std::numeric_limits<std::int64_t>::max(), "chosen", "3 entries for 4 groups");
}

TEST_F(SelectRefuses, ScratchThatIsTooSmall) {
  scratch_.resize(3);
  refuse(2, "scratch", "3 entries where 4 are needed");
}

TEST_F(SelectRefuses, MoreGroupsThanPositionsCanCountBeforeReadingAny) {
  for (const std::size_t groups : {std::size_t{1} << 31, std::size_t{1} << 32, std::size_t{1} << 60}) {
    scores_ = std::span(scores_.data(), groups);
    refuse(2, "scores", "pass i32");
  }
}

// Every kernel; the scores of forced groups are NaN, so that reading one would be refused.
Groups select_forced_by_all(std::vector<float> scores, std::int64_t keep, ForcedGroups forced) {
  const auto groups = static_cast<std::int64_t>(scores.size());
  for (std::int64_t g = 0; g < groups; ++g) {
    if (g < forced.first || g >= groups - forced.newest) scores[static_cast<std::size_t>(g)] = kNaN;
  }
  Groups first;
  for (const Kernels& kernels : Kernels::available()) {
    Groups scratch(static_cast<std::size_t>(select_scratch_entries(groups)), kGarbage);
    Groups chosen(static_cast<std::size_t>(std::min(forced.most(keep), groups)), kGarbage);
    const auto count = select_with(kernels, scores, keep, forced, NanPolicy::kRefuse, scratch, chosen);
    EXPECT_TRUE(count.ok()) << count.status().message();
    chosen.resize(count.ok() ? static_cast<std::size_t>(*count) : 0);
    if (first.empty()) first = chosen;
    EXPECT_EQ(chosen, first) << kernels.name();
  }
  return first;
}

TEST(SelectForced, InsideIsPlainSelectionOverScoresOfInfinity) {
  for (const test::Spread spread : test::kSpreads) {
    for (const std::int64_t groups : {1, 2, 5, 40, 700}) {
      auto scores = test::scores_of(spread, groups, 3);
      for (float& score : scores) score = std::min(score, 1e30f);
      for (const ForcedGroups forced : {ForcedGroups{1, 0}, {0, 1}, {2, 3}}) {
        auto raised = scores;
        for (std::int64_t g = 0; g < groups; ++g) {
          if (g < forced.first || g >= groups - forced.newest) raised[static_cast<std::size_t>(g)] = kInfinity;
        }
        for (const std::int64_t keep : {5, 6, 20, 1000})
          EXPECT_EQ(select_forced_by_all(scores, keep, forced), select(raised, keep)) << groups << ", " << keep;
      }
    }
  }
}

TEST(SelectForced, OutsideLeavesTheBudgetToTheOthers) {
  const std::vector<float> scores{9, 1, 5, 5, 2, 7};
  EXPECT_EQ(select_forced_by_all(scores, 2, {1, 1, true}), (Groups{0, 2, 3, 5}));
  EXPECT_EQ(select_forced_by_all(scores, 0, {1, 1, true}), (Groups{0, 5}));
  EXPECT_EQ(select_forced_by_all(scores, 9, {4, 4, true}), (Groups{0, 1, 2, 3, 4, 5}));
}

TEST(SelectForced, WhatDoesNotFitIsRefused) {
  const std::vector<float> scores{1, 2, kNaN, 4, 5};
  Groups scratch(5), chosen(5);
  const auto refused = [&](std::int64_t keep, ForcedGroups forced) {
    return select_forced(scores, keep, forced, NanPolicy::kRefuse, scratch, chosen, 7).status();
  };
  expect_refused(refused(2, {2, 1}), Code::kInvalidArgument, "forced", {7, -1}, "3 groups inside a budget of 2");
  expect_refused(refused(2, {-1, 1}), Code::kInvalidArgument, "forced", {7, -1}, "-1 first");
  expect_refused(refused(-1, {0, 1, true}), Code::kInvalidArgument, "keep", {7, -1}, "-1 is negative");
  expect_refused(refused(3, {1, 1}), Code::kNotANumber, "scores", {7, 2}, "group 2 of row 7");
  chosen.resize(3);
  expect_refused(refused(2, {1, 1, true}), Code::kInvalidArgument, "chosen", {7, -1}, "3 entries for 4 groups");
}

}  // namespace
}  // namespace seriatim
