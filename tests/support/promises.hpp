// For the suites of the row's five promises: each looks at a row in a way that is blind to the other four, so that a
// failure says which promise broke.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "support/rows.hpp"

namespace seriatim::test {

// A plan whose promises are checked.
struct Example {
  Geometry geometry;
  VisibleRun run;
  std::vector<float> scores;
  std::vector<std::int32_t> row;

  std::int64_t complete() const { return run.tokens / geometry.group_tokens(); }
  std::int64_t first_of_tail() const { return run.anchor + complete() * geometry.group_tokens(); }
  std::int64_t group_of(std::int32_t position) const { return (position - run.anchor) / geometry.group_tokens(); }
};

// Plans of every shape: group sizes, budgets, counts around each group, budget and row width, anchors, distributions.
inline std::vector<Example> sparse_examples() {
  std::vector<Example> examples;
  std::uint64_t seed = 1;
  for (const std::int64_t r : {1, 2, 3, 4, 7}) {
    for (const std::int64_t kept : {1, 2, 5, 64}) {
      const Geometry geometry = row_geometry(r, kept * r);
      for (std::int64_t past = 0; past <= 2 * r + 1; ++past) {
        for (const std::int64_t extra : {0, 40}) {
          for (const Spread spread : kSpreads) {
            const std::int64_t tokens = geometry.row_capacity() + 1 + past + extra * r;
            const VisibleRun run{static_cast<std::int64_t>(seed % 3) * 1000003, tokens};
            auto scores = scores_of(spread, tokens / r, seed++);
            const Planned planned = plan(geometry, run, scores);
            EXPECT_TRUE(planned.status.ok()) << planned.status.message();
            examples.push_back({geometry, run, scores, planned.row()});
          }
        }
      }
    }
  }
  EXPECT_GT(examples.size(), 1000u);
  return examples;
}

// The groups a row reads anything of, the tail left aside.
inline std::set<std::int64_t> groups_touched(const Example& example) {
  std::set<std::int64_t> groups;
  for (const std::int32_t position : example.row) {
    if (position < example.first_of_tail()) groups.insert(example.group_of(position));
  }
  return groups;
}

inline std::set<std::int64_t> best_groups(const Example& example) {
  const auto best_first = ranking(example.scores);
  const auto kept = std::min(example.complete(), example.geometry.budget_groups());
  return {best_first.begin(), best_first.begin() + kept};
}

}  // namespace seriatim::test
