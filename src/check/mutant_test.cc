// The checker against engines that are right, and against engines with a fault made on purpose.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "base/format.hpp"
#include "seriatim/row.hpp"
#include "support/mutants.hpp"

namespace seriatim {
namespace {

using testing::MutableRow;
using testing::Mutant;
using testing::Random;

// The figures of docs/conformance.md come from four rounds.
int rounds() {
  const char* given = std::getenv("SERIATIM_CHECK_ROUNDS");
  return given == nullptr ? 1 : std::atoi(given);
}

constexpr RowRule kRules[] = {RowRule::kCanonical, RowRule::kSet, RowRule::kRank, RowRule::kArrival};

Geometry rule_of(std::int64_t group_tokens, std::int64_t budget_groups) {
  GeometryOptions options;
  options.group_tokens = group_tokens;
  options.budget_tokens = group_tokens * budget_groups;
  return *Geometry::admit(std::move(options));
}

// One query of some geometry; `few_values` makes many scores equal.
struct Case {
  Geometry geometry;
  RowUnit unit;
  RowRule rule;
  VisibleRun run;
  std::vector<float> scores;
};

Case random_case(Random& random, RowRule rule) {
  const std::int64_t group_tokens = std::array<std::int64_t, 4>{1, 2, 4, 5}[static_cast<std::size_t>(random.below(4))];
  Case c{rule_of(group_tokens, 1 + random.below(12)),
         random.below(3) == 0 ? RowUnit::kGroup : RowUnit::kToken,
         rule,
         {random.below(2) * (1'000'003), random.below(group_tokens * 30)},
         {}};
  const bool few_values = random.below(2) == 0;
  for (std::int64_t g = 0; g < c.geometry.groups(c.run.tokens); ++g) {
    c.scores.push_back(few_values ? static_cast<float>(random.below(4)) * 0.5f : random.uniform());
  }
  return c;
}

// The row as an engine would hand it over: i32 or i64, any width, in a batch of strided rows.
struct Handed {
  std::vector<std::byte> rows;
  std::int64_t visible = 0;
  std::unique_ptr<Selection> selection;
};

void hand_over(Random& random, const Case& c, const std::vector<std::int64_t>& entries, bool scored, Handed& to) {
  const DType dtype = random.below(2) == 0 ? DType::kI32 : DType::kI64;
  const std::int64_t width = std::ssize(entries) + random.below(5);
  const std::int64_t stride_bytes = dtype_bytes(dtype) * (1 + random.below(3));
  to.rows.assign(static_cast<std::size_t>(width * stride_bytes) + 8, std::byte{0x7f});
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t entry = i < std::ssize(entries) ? entries[static_cast<std::size_t>(i)] : kRowPadding;
    const auto narrow = static_cast<std::int32_t>(entry);
    std::memcpy(to.rows.data() + i * stride_bytes, dtype == DType::kI32 ? static_cast<const void*>(&narrow) : &entry,
                static_cast<std::size_t>(dtype_bytes(dtype)));
  }
  SelectionViews views;
  views.rows = dense_view(static_cast<const void*>(to.rows.data()), dtype, {1, width});
  views.rows.stride_bytes = {width * stride_bytes, stride_bytes, 0, 0};
  to.visible = c.run.tokens;
  views.visible = dense_view(static_cast<const void*>(&to.visible), DType::kI64, {1});
  if (scored) views.scores = dense_view(c.scores.data(), DType::kF32, {1, std::ssize(c.scores)});
  if (scored && views.scores.data == nullptr) views.scores.data = to.rows.data();
  Selection::About about;
  about.group_tokens = c.geometry.group_tokens();
  about.budget_tokens = c.geometry.budget_tokens();
  about.anchor = c.run.anchor;
  about.unit = c.unit;
  auto selection = view_selection(views, std::move(about));
  ASSERT_TRUE(selection.ok()) << selection.status().message();
  to.selection = *std::move(selection);
}

std::set<Promise> named(Random& random, const Case& c, const std::vector<std::int64_t>& entries, bool scored = true) {
  Handed handed;
  hand_over(random, c, entries, scored, handed);
  CheckOptions options;
  options.rule = c.rule;
  const auto report = check(*handed.selection, options);
  EXPECT_TRUE(report.ok()) << report.status().message();
  std::set<Promise> names;
  for (const Finding& finding : report->findings) {
    names.insert(finding.promise);
    EXPECT_FALSE(finding.what.empty());
    EXPECT_GE(finding.entries, 1) << finding.what;
    EXPECT_EQ(report->of(finding.promise).faults, 1);
  }
  EXPECT_EQ(names.empty(), report->conforms());
  return names;
}

std::string words(const std::set<Promise>& promises) {
  std::string text;
  for (const Promise promise : promises) text += formatted("{} ", promise_name(promise));
  return text;
}

std::string shown(const Case& c, const std::vector<std::int64_t>& entries) {
  std::string text =
      formatted("r {} B {} n {} a {} {} rule {} row", c.geometry.group_tokens(), c.geometry.budget_tokens(),
                c.run.tokens, c.run.anchor, c.unit == RowUnit::kGroup ? "groups" : "tokens", static_cast<int>(c.rule));
  for (const std::int64_t entry : entries) text += formatted(" {}", entry);
  return text;
}

TEST(Mutants, ARightRowConformsInEveryRuleDtypeAndLayout) {
  Random random(1);
  std::int64_t rows = 0;
  for (int trial = 0; trial < 6'250 * rounds(); ++trial) {
    const Case c = random_case(random, kRules[trial % 4]);
    const auto entries = flattened(random, right_row(random, c.geometry, c.unit, c.rule, c.run, c.scores));
    for (const bool scored : {true, false}) {
      ASSERT_EQ(words(named(random, c, entries, scored)), "") << shown(c, entries);
      ++rows;
    }
  }
  std::printf("right rows: %lld judged, 0 false alarms\n", static_cast<long long>(rows));
}

TEST(Mutants, EachFaultIsNamedAsItsPromiseAndNoOther) {
  Random random(2);
  std::map<std::string, std::int64_t> made;
  for (int trial = 0; trial < 2'000 * rounds(); ++trial) {
    const Case c = random_case(random, kRules[trial % 4]);
    const MutableRow right = right_row(random, c.geometry, c.unit, c.rule, c.run, c.scores);
    for (const Mutant& mutant : testing::mutants()) {
      MutableRow row = right;
      if (!mutant.make(random, row)) continue;
      ++made[mutant.name];
      const auto entries = flattened(random, row);
      ASSERT_EQ(words(named(random, c, entries)), words({mutant.promise})) << mutant.name << ": " << shown(c, entries);
    }
  }
  std::int64_t all = 0;
  for (const Mutant& mutant : testing::mutants()) {
    EXPECT_GT(made[mutant.name], 25) << mutant.name;
    all += made[mutant.name];
  }
  std::printf("one fault: %zu kinds, %lld rows, all named exactly\n", made.size(), static_cast<long long>(all));
}

TEST(Mutants, TwoFaultsInOneRowAreBothNamedAndNothingElse) {
  Random random(3);
  std::map<std::pair<Promise, Promise>, std::int64_t> made;
  const auto& all = testing::mutants();
  std::int64_t rows = 0;
  for (int trial = 0; trial < 500 * rounds(); ++trial) {
    // Not `set`: without an order two faults can be the very row that two others make.
    const Case c = random_case(random, std::array{RowRule::kCanonical, RowRule::kRank,
                                                  RowRule::kArrival}[static_cast<std::size_t>(trial) % 3]);
    const MutableRow right = right_row(random, c.geometry, c.unit, c.rule, c.run, c.scores);
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (std::size_t j = i + 1; j < all.size(); ++j) {
        if (!all[i].in_pairs || !all[j].in_pairs) continue;
        MutableRow row = right;
        row.in_pair = true;
        if (!all[i].make(random, row) || !all[j].make(random, row)) continue;
        ++made[{all[i].promise, all[j].promise}];
        ++rows;
        const auto entries = flattened(random, row);
        ASSERT_EQ(words(named(random, c, entries)), words({all[i].promise, all[j].promise}))
            << all[i].name << " and " << all[j].name << ": " << shown(c, entries);
      }
    }
  }
  EXPECT_GE(made.size(), 33u);
  std::printf("two faults: %zu pairs of promises, %lld rows, all named exactly\n", made.size(),
              static_cast<long long>(rows));
}

TEST(Mutants, WithoutScoresTheSetIsNotJudged) {
  Random random(4);
  std::int64_t looked_at = 0;
  for (int trial = 0; trial < 1'000 * rounds(); ++trial) {
    const Case c = random_case(random, RowRule::kCanonical);
    const MutableRow right = right_row(random, c.geometry, c.unit, c.rule, c.run, c.scores);
    for (const Mutant& mutant : testing::mutants()) {
      MutableRow row = right;
      if (!mutant.make(random, row)) continue;
      const bool of_the_set = mutant.promise == Promise::kMembership || mutant.promise == Promise::kTie;
      const auto entries = flattened(random, row);
      ASSERT_EQ(words(named(random, c, entries, false)), of_the_set ? "" : words({mutant.promise}))
          << mutant.name << ": " << shown(c, entries);
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 5'000);
}

}  // namespace
}  // namespace seriatim
