// attend() in two halves: any partition of a row's splits, by any kernels, folds to the bits of the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "seriatim/attend.hpp"
#include "seriatim/score.hpp"
#include "seriatim/select.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Queries 699, 130 and 127 of one sequence over dense rows: 6 splits, 2 and 1.
struct Half {
  Half(const GeometryOptions& options, std::uint64_t seed, bool with_sinks)
      : story(options, 700, seed), held(story, 700), snapshot(held.snapshot()), layer(snapshot.layer(0)) {
    if (with_sinks) {
      for (std::int64_t h = 0; h < story.geometry.query_heads(); ++h)
        story.sinks.push_back(static_cast<float>(h % 3) - 1.0f);
    }
    asked.emplace(story, std::vector<std::int64_t>{699, 130, 127});
    Engine engine = *Engine::host();
    const Status status = engine.plan(layer, asked->for_plan(), NanPolicy::kRefuse, answers.rows_from(0));
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(answers.counts[0], 700);
  }
  static constexpr std::int64_t kQueries = 3;
  static constexpr std::int64_t kSplits = 6;

  AttendAsk ask() const { return {&layer, asked->for_attend()}; }
  std::int64_t floats() const { return attend_partial_floats(story.geometry); }

  // All partials, made range by range.
  std::vector<float> partials(std::vector<Engine>& engines, const std::vector<std::int64_t>& cuts,
                              std::int64_t splits) {
    const auto size = static_cast<std::size_t>(floats());
    std::vector<float> all(static_cast<std::size_t>(kQueries * splits) * size, -5.0f);
    for (std::size_t c = 0; c + 1 < cuts.size(); ++c) {
      const std::int64_t count = cuts[c + 1] - cuts[c];
      std::vector<float> some(static_cast<std::size_t>(kQueries * count) * size, -5.0f);
      const Status status =
          engines[c % engines.size()].attend_partials(ask(), answers.rows_from(0), cuts[c], count, some);
      EXPECT_TRUE(status.ok()) << status.message();
      for (std::int64_t q = 0; q < kQueries; ++q) {
        std::copy_n(some.data() + static_cast<std::size_t>(q * count) * size, static_cast<std::size_t>(count) * size,
                    all.data() + static_cast<std::size_t>(q * splits + cuts[c]) * size);
      }
    }
    return all;
  }

  std::vector<float> partials_from(Engine& engine, std::int64_t first, std::int64_t splits) {
    std::vector<float> some(static_cast<std::size_t>(kQueries * splits * floats()), -5.0f);
    EXPECT_TRUE(engine.attend_partials(ask(), answers.rows_from(0), first, splits, some).ok());
    return some;
  }

  Story story;
  HeldStory held;
  Snapshot snapshot;
  LayerView layer;
  std::optional<Asked> asked;
  Answers answers{story.geometry, kQueries};
};

GeometryOptions dense_rows(DType dtype) {
  GeometryOptions options = small_path(4, dtype);
  options.budget_tokens = 1024;
  return options;
}

// A latent whose leading dims are the values, one kv head of many query heads.
GeometryOptions latent(DType dtype) {
  GeometryOptions options = dense_rows(dtype);
  options.query_heads = 20;
  options.kv_heads = 1;
  options.head_dim = 72;
  options.value_dim = 67;
  options.values_alias_keys = true;
  return options;
}

std::vector<Engine> every_engine(Executor& executor) {
  std::vector<Engine> engines;
  for (const Kernels kernels : Kernels::available()) engines.push_back(*Engine::host(executor, kernels));
  return engines;
}

TEST(Halves, AnyPartitionByAnyKernelsFoldsToTheWholeBitForBit) {
  std::mt19937 random(3);
  const auto two = make_executor(2);
  for (const DType stored : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const bool aliased : {false, true}) {
      for (const bool with_sinks : {false, true}) {
        Half half(aliased ? latent(stored) : dense_rows(stored), 600, with_sinks);
        const Geometry& g = half.story.geometry;
        std::vector<Engine> engines = every_engine(*two);
        const std::vector<float> whole = half.partials(engines, {0, Half::kSplits}, Half::kSplits);
        for (int round = 0; round < 4; ++round) {
          std::vector<std::int64_t> cuts{0, Half::kSplits};
          for (int c = 0; c < 3; ++c) cuts.push_back(static_cast<std::int64_t>(random() % 7));
          std::sort(cuts.begin(), cuts.end());
          std::rotate(engines.begin(), engines.begin() + 1, engines.end());
          const std::vector<float> partials = half.partials(engines, cuts, Half::kSplits);
          ASSERT_TRUE(same_bits(partials, whole));
          for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
            HostTensor due(dtype, {Half::kQueries, g.query_heads(), g.value_dim()});
            HostTensor got(dtype, {Half::kQueries, g.query_heads(), g.value_dim()});
            HostTensor due_lse(DType::kF32, {Half::kQueries, g.query_heads()});
            HostTensor got_lse(DType::kF32, {Half::kQueries, g.query_heads()});
            const AttendAsk ask = half.ask();
            ASSERT_TRUE(
                engines[0]
                    .attend(*ask.layer, ask.queries, half.answers.rows_from(0), due.writable(), due_lse.writable())
                    .ok());
            for (Engine& engine : engines) {
              ASSERT_TRUE(
                  engine.fold_partials(g, partials, Half::kSplits, half.story.sinks, got.writable(), got_lse.writable())
                      .ok());
              ASSERT_TRUE(varies(due.bytes()));
              ASSERT_TRUE(same_bits(got.bytes(), due.bytes()));
              ASSERT_TRUE(same_bits(got_lse.bytes(), due_lse.bytes()));
            }
          }
        }
      }
    }
  }
}

TEST(Halves, SplitsPastTheRowAreEmptyAndChangeNothing) {
  Half half(dense_rows(DType::kF32), 601, false);
  const Geometry& g = half.story.geometry;
  std::vector<Engine> engines = every_engine(serial_executor());
  const std::vector<float> partials = half.partials(engines, {0, 9}, 9);
  const auto size = static_cast<std::size_t>(half.floats());
  const float* past = partials.data() + 8 * size;
  for (std::size_t i = 0; i < size; ++i)
    ASSERT_EQ(past[i], i < 4 ? -std::numeric_limits<float>::infinity() : 0.0f) << i;
  HostTensor got(DType::kF32, {Half::kQueries, g.query_heads(), g.value_dim()});
  const AttendAsk ask = half.ask();
  for (Engine& engine : engines) {
    ASSERT_TRUE(engine
                    .attend(*ask.layer, ask.queries, half.answers.rows_from(0), half.answers.output.writable(),
                            half.answers.lse.writable())
                    .ok());
    ASSERT_TRUE(engine.fold_partials(g, partials, 9, {}, got.writable(), {}).ok());
    EXPECT_TRUE(same_bits(got.bytes(), half.answers.output.bytes()));
  }
}

TEST(Halves, AStateHandedOnFoldsToTheWholeBitForBit) {
  const auto two = make_executor(2);
  for (const DType stored : {DType::kF32, DType::kBf16}) {
    for (const bool aliased : {false, true}) {
      for (const bool with_sinks : {false, true}) {
        Half half(aliased ? latent(stored) : dense_rows(stored), 604, with_sinks);
        const Geometry& g = half.story.geometry;
        std::vector<Engine> engines = every_engine(*two);
        HostTensor due(DType::kF32, {Half::kQueries, g.query_heads(), g.value_dim()});
        HostTensor got(DType::kF32, {Half::kQueries, g.query_heads(), g.value_dim()});
        HostTensor due_lse(DType::kF32, {Half::kQueries, g.query_heads()});
        HostTensor got_lse(DType::kF32, {Half::kQueries, g.query_heads()});
        ASSERT_TRUE(engines[0]
                        .fold_partials(g, half.partials(engines, {0, Half::kSplits}, Half::kSplits), Half::kSplits,
                                       half.story.sinks, due.writable(), due_lse.writable())
                        .ok());
        ASSERT_TRUE(varies(due.bytes()));
        const auto floats = static_cast<std::size_t>(half.floats());
        for (std::size_t e = 0; e < engines.size(); ++e) {
          // Empty first: nothing has been folded yet, but for sinks. Then 1, 3 and 2 splits by different kernels.
          std::vector<float> states(Half::kQueries * floats, -5.0f);
          ASSERT_TRUE(engines[e].fold_state(g, {}, 0, half.story.sinks, Half::kQueries, states).ok());
          std::int64_t first = 0;
          for (const std::int64_t splits : {1, 3, 2}) {
            std::vector<Engine> one;
            one.push_back(*Engine::host(
                *two, Kernels::available()[(e + static_cast<std::size_t>(splits)) % Kernels::available().size()]));
            const std::vector<float> own = half.partials_from(one[0], first, splits);
            std::vector<float> all;
            for (std::size_t q = 0; q < Half::kQueries; ++q) {
              all.insert(all.end(), states.begin() + static_cast<std::ptrdiff_t>(q * floats),
                         states.begin() + static_cast<std::ptrdiff_t>((q + 1) * floats));
              const std::size_t size = static_cast<std::size_t>(splits) * floats;
              all.insert(all.end(), own.begin() + static_cast<std::ptrdiff_t>(q * size),
                         own.begin() + static_cast<std::ptrdiff_t>((q + 1) * size));
            }
            ASSERT_TRUE(one[0].fold_state(g, all, splits + 1, {}, Half::kQueries, states).ok());
            first += splits;
          }
          ASSERT_TRUE(engines[e].fold_partials(g, states, 1, {}, got.writable(), got_lse.writable()).ok());
          EXPECT_TRUE(same_bits(got.bytes(), due.bytes()));
          EXPECT_TRUE(same_bits(got_lse.bytes(), due_lse.bytes()));
        }
      }
    }
  }
}

TEST(Halves, CandidatesAreTheBestGroupsWithTheirScores) {
  const Story story(small_path(4, DType::kBf16), 300, 605, 8);
  HeldStory held(story, 300);
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  const Asked asked(story, std::vector<std::int64_t>{299, 2, 130, 20});
  const PlanAsk ask{&layer, asked.for_plan()};
  for (Engine& engine : [] { return every_engine(serial_executor()); }()) {
    std::vector<std::int32_t> groups(4 * 9, -3);
    std::vector<float> scores(4 * 9, -3.0f);
    std::vector<std::int32_t> counts(4, -3);
    ASSERT_TRUE(
        engine.plan_candidates({&ask, 1}, NanPolicy::kRefuse, {groups.data(), scores.data(), 9, counts.data()}).ok());
    EXPECT_EQ(counts, (std::vector<std::int32_t>{8, 0, 8, 5}));
    EXPECT_EQ(engine.done().queries, 0);
    for (const std::int64_t q : {0, 2, 3}) {
      const std::int64_t position = ask.queries.positions[static_cast<std::size_t>(q)];
      const PooledKeys pooled = layer.pooled_up_to(position);
      std::vector<float> all(static_cast<std::size_t>(pooled.groups));
      ASSERT_TRUE(score_groups(story.geometry, row_of(ask.queries.queries, q), {}, pooled, all).ok());
      std::vector<std::int32_t> scratch(all.size());
      std::vector<std::int32_t> due(std::min<std::size_t>(8, all.size()));
      ASSERT_TRUE(select_groups(all, 8, NanPolicy::kRefuse, scratch, due).ok());
      for (std::size_t i = 0; i < due.size(); ++i) {
        const std::size_t at = static_cast<std::size_t>(q) * 9 + i;
        EXPECT_EQ(groups[at], due[i]);
        EXPECT_EQ(scores[at], all[static_cast<std::size_t>(due[i])]);
      }
    }
    const Candidates narrow{groups.data(), scores.data(), 7, counts.data()};
    EXPECT_TRUE(fails_with(engine.plan_candidates({&ask, 1}, NanPolicy::kRefuse, narrow), Code::kInvalidArgument,
                           "candidates"));
  }
}

TEST(Halves, NothingFoldedIsZerosAndALogSumExpOfMinusInfinity) {
  const Geometry g = *Geometry::admit(dense_rows(DType::kF32));
  for (Engine& engine : [] { return every_engine(serial_executor()); }()) {
    HostTensor output(DType::kF32, {1, 4, 6});
    HostTensor lse(DType::kF32, {1, 4});
    output.fill(3.0f);
    ASSERT_TRUE(engine.fold_partials(g, {}, 0, {}, output.writable(), lse.writable()).ok());
    for (std::int64_t i = 0; i < output.elements(); ++i) ASSERT_EQ(output.get(i), 0.0f);
    for (std::int64_t i = 0; i < lse.elements(); ++i) ASSERT_EQ(lse.get(i), -std::numeric_limits<float>::infinity());
  }
}

TEST(Halves, AnOverflowIsCarriedInThePartialsAndNamedByTheFold) {
  Half half(dense_rows(DType::kF32), 602, false);
  for (std::int64_t i = 0; i < 8; ++i) half.story.queries.set((130 * 4 + 3) * 8 + i, 3e38f);
  half.asked.emplace(half.story, std::vector<std::int64_t>{699, 130, 127});
  const Geometry& g = half.story.geometry;
  std::vector<Engine> engines = every_engine(serial_executor());
  std::optional<std::vector<float>> first;
  for (Engine& engine : engines) {
    std::vector<Engine> one;
    one.push_back(std::move(engine));
    const std::vector<float> partials = half.partials(one, {0, 2, 6}, 6);
    const auto size = static_cast<std::size_t>(half.floats());
    EXPECT_TRUE(std::isnan(partials[6 * size + 3]) && std::isnan(partials[7 * size + 4 + 3]));
    EXPECT_FALSE(std::isnan(partials[6 * size + 2]));
    if (first) {
      EXPECT_TRUE(same_bits(partials, *first));
    }
    first = partials;
    HostTensor got(DType::kF32, {Half::kQueries, g.query_heads(), g.value_dim()});
    const Status status = one[0].fold_partials(g, partials, 6, {}, got.writable(), {});
    EXPECT_TRUE(fails_with(status, Code::kOverflow, "output", 1, 3));
    for (std::int64_t i = 0; i < got.elements(); ++i) EXPECT_EQ(std::isnan(got.get(i)), i / 6 == 4 + 3) << i;
  }
}

TEST(Halves, RefusesSplitsAndSizesThatAreNone) {
  Half half(dense_rows(DType::kF32), 603, false);
  const Geometry& g = half.story.geometry;
  Engine engine = *Engine::host();
  std::vector<float> partials(static_cast<std::size_t>(3 * 2 * half.floats()), -5.0f);
  const auto reduce = [&](std::int64_t first, std::int64_t splits, std::size_t floats) {
    return engine.attend_partials(half.ask(), half.answers.rows_from(0), first, splits,
                                  std::span(partials).first(floats));
  };
  const std::size_t due = partials.size();
  EXPECT_TRUE(fails_with(reduce(-1, 2, due), Code::kInvalidArgument, "splits"));
  EXPECT_TRUE(fails_with(reduce(0, -2, due), Code::kInvalidArgument, "splits"));
  EXPECT_TRUE(fails_with(reduce(0, 2, due - 1), Code::kInvalidArgument, "partials"));
  half.answers.counts[2] = -1;
  EXPECT_TRUE(fails_with(reduce(0, 2, due), Code::kInvalidArgument, "rows", 2));
  EXPECT_TRUE(std::all_of(partials.begin(), partials.end(), [](float x) { return x == -5.0f; }));

  HostTensor output(DType::kF32, {3, 4, 6});
  output.fill(-77.0f);
  const auto fold = [&](std::int64_t splits, std::size_t floats, std::span<const float> sinks) {
    return engine.fold_partials(g, std::span(partials).first(floats), splits, sinks, output.writable(), {});
  };
  const std::vector<float> three(3);
  EXPECT_TRUE(fails_with(fold(-1, due, {}), Code::kInvalidArgument, "splits"));
  EXPECT_TRUE(fails_with(fold(2, due - 1, {}), Code::kInvalidArgument, "partials"));
  EXPECT_TRUE(fails_with(fold(2, due, three), Code::kInvalidArgument, "sinks"));
  for (std::int64_t i = 0; i < output.elements(); ++i) ASSERT_EQ(output.get(i), -77.0f);
}

}  // namespace
}  // namespace seriatim
