// Screening on the host: the rows of full scoring, whatever is forced, and what it says it did.
#include <gtest/gtest.h>

#include <algorithm>

#include "screen/screen_kernels.hpp"
#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

// What one engine plans of some tokens' queries.
struct Planned {
  Planned(const Story& story, const LayerView& layer, std::span<const std::int64_t> tokens, NanPolicy nan,
          Screening screening, Executor& executor = serial_executor(), Kernels kernels = default_kernels())
      : engine(*Engine::host(executor, kernels, screening)),
        answers(story.geometry, static_cast<std::int64_t>(tokens.size())) {
    const Asked asked(story, tokens);
    EXPECT_TRUE(engine.reserve(story.geometry, {story.tokens(), asked.for_plan().queries.shape[0], 1}).ok());
    status = engine.plan(layer, asked.for_plan(), nan, answers.rows_from(0));
  }
  WorkDone done() const { return engine.done(); }

  Engine engine;
  Answers answers;
  Status status;
};

bool same_rows(const Planned& a, const Planned& b) {
  for (std::size_t q = 0; q < a.answers.counts.size(); ++q) {
    const auto index = static_cast<std::int64_t>(q);
    if (!same_bytes<std::int32_t>(a.answers.row(index), b.answers.row(index))) return false;
  }
  return a.answers.counts == b.answers.counts && !a.answers.counts.empty();
}

// Tokens all over the story, the last among them.
std::vector<std::int64_t> scattered(std::int64_t count, std::int64_t tokens) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back((tokens - 1 + i * 677) % tokens);
  return out;
}

TEST(Screening, RowsAreThoseOfFullScoring) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const std::int64_t group_tokens : {1, 3}) {
      const Story story(small_path(group_tokens, dtype), 1100, 301);
      HeldStory held(story, story.tokens());
      const Snapshot snapshot = held.snapshot();
      const LayerView layer = snapshot.layer(0);
      const auto threads = make_executor(3);
      for (const std::int64_t count : {1, 3, 70}) {
        const auto tokens = scattered(count, story.tokens());
        for (const NanPolicy nan : {NanPolicy::kRefuse, NanPolicy::kExclude}) {
          const Planned full(story, layer, tokens, nan, Screening::kOff);
          ASSERT_TRUE(full.status.ok());
          EXPECT_EQ(full.done().groups_screened + full.done().groups_rescored + full.done().screen_fallbacks, 0);
          EXPECT_GT(full.done().index_bytes_read, 0);
          for (const Kernels kernels : {Kernels::fastest(), Kernels::reference()}) {
            for (Executor* executor : {&serial_executor(), threads.get()}) {
              const Planned screened(story, layer, tokens, nan, Screening::kOn, *executor, kernels);
              ASSERT_TRUE(screened.status.ok());
              EXPECT_TRUE(same_rows(screened, full)) << dtype_name(dtype) << ", " << count << " queries";
              EXPECT_EQ(screened.done().groups_scored, full.done().groups_scored);
              if (nan == NanPolicy::kExclude && count > 3) continue;  // short runs share the blocks
              EXPECT_GT(screened.done().groups_screened, full.done().groups_scored * 8 / 10);
              EXPECT_GT(screened.done().groups_rescored, 0);
              EXPECT_LT(screened.done().groups_rescored, screened.done().groups_screened / 4);
              EXPECT_GE(screened.done().index_bytes_read, full.done().index_bytes_read);
            }
          }
        }
      }
    }
  }
}

TEST(Screening, CandidatesHaveTheirCanonicalScores) {
  const Story story(small_path(1, DType::kBf16), 900, 302);
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const LayerView layer = snapshot.layer(0);
  const auto tokens = scattered(4, story.tokens());  // all see more groups than the budget
  const Asked asked(story, tokens);
  const PlanAsk ask{&layer, asked.for_plan()};
  const std::int64_t keep = story.geometry.budget_groups();
  std::vector<std::int32_t> groups[2], counts[2];
  std::vector<float> scores[2];
  for (const bool screens : {false, true}) {
    groups[screens].resize(static_cast<std::size_t>(4 * keep));
    scores[screens].resize(static_cast<std::size_t>(4 * keep));
    counts[screens].resize(4);
    Engine engine = *Engine::host(serial_executor(), default_kernels(), screens ? Screening::kOn : Screening::kOff);
    const Candidates to{groups[screens].data(), scores[screens].data(), keep, counts[screens].data()};
    ASSERT_TRUE(engine.plan_candidates({&ask, 1}, NanPolicy::kRefuse, to).ok());
    EXPECT_EQ(engine.done().groups_screened, 0) << "nothing is counted";
  }
  EXPECT_EQ(groups[1], groups[0]);
  EXPECT_EQ(counts[1], counts[0]);
  EXPECT_TRUE(same_bytes<float>(scores[1], scores[0]));
}

Story with_equal_keys() {
  GeometryOptions options = small_path(1, DType::kBf16);
  options.pooling = Pooling::kNone;
  options.index_rotary_dim = 0;
  Story story(options, 700, 303);
  const Tensor keys = story.index_keys.writable();
  for (std::int64_t t = 1; t < 700; ++t)
    std::copy_n(keys.at(0), static_cast<std::size_t>(row_bytes(DType::kBf16, story.geometry.index_dim())), keys.at(t));
  return story;
}

TEST(Screening, EqualScoresFallBackAndAreCounted) {
  const Story story = with_equal_keys();
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const std::vector<std::int64_t> tokens{699, 650, 640, 3};
  const Planned full(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOff);
  const Planned screened(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOn);
  ASSERT_TRUE(full.status.ok() && screened.status.ok());
  EXPECT_TRUE(same_rows(screened, full));
  EXPECT_EQ(screened.done().screen_fallbacks, 3) << "the fourth needs no scores";
  EXPECT_EQ(screened.done().groups_screened, 0);
  EXPECT_GE(screened.done().index_bytes_read, 2 * full.done().index_bytes_read);
}

TEST(Screening, WhereNoBoundHoldsOnlyQueriesThatNeedScoresAreFallbacks) {
  GeometryOptions options = small_path(1, DType::kF32);
  options.pooling = Pooling::kNone;
  options.index_rotary_dim = 0;
  Story story(options, 500, 313);
  const float huge = 1e37f;
  std::memcpy(story.index_keys.writable().at(7, 0), &huge, sizeof huge);
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const std::vector<std::int64_t> tokens{499, 480, 3};
  const Planned full(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOff);
  const Planned screened(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOn);
  ASSERT_TRUE(full.status.ok() && screened.status.ok());
  EXPECT_TRUE(same_rows(screened, full));
  EXPECT_EQ(screened.done().screen_fallbacks, 2);
  EXPECT_EQ(screened.done().groups_screened, 0);
}

// Scores that overflow: the same refusal, or the same groups left out.
TEST(Screening, NaNScoresAreRefusedOrLeftOutAsEver) {
  GeometryOptions options = small_path(1, DType::kF32);
  options.pooling = Pooling::kNone;
  options.index_rotary_dim = 0;
  Story story(options, 500, 307);
  story.head_weights = HostTensor(DType::kF32, {500, 3});
  for (std::int64_t t = 0; t < 500; ++t) {
    for (std::int64_t h = 0; h < 3; ++h) {
      const float sign = h == 1 ? -1.0f : 1.0f;  // of two infinite heads one is taken from the other
      std::memcpy(story.head_weights.writable().at(t, h), &sign, sizeof sign);
    }
  }
  for (std::int64_t t = 0; t < 500; t += 7) {
    for (std::int64_t i = 0; i < story.geometry.index_dim(); ++i) {
      const float huge = i % 2 == 0 ? 3e38f : -3e38f;
      std::memcpy(story.index_keys.writable().at(t, i), &huge, sizeof huge);
    }
  }
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  int refused = 0;
  for (const std::int64_t count : {1, 40}) {
    const auto tokens = scattered(count, story.tokens());
    const Planned full(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOff);
    const Planned screened(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, Screening::kOn);
    EXPECT_EQ(screened.status.message(), full.status.message());
    EXPECT_EQ(screened.answers.rows_untouched(), full.answers.rows_untouched());
    refused += full.status.code() == Code::kNotANumber ? 1 : 0;
    const Planned some(story, snapshot.layer(0), tokens, NanPolicy::kExclude, Screening::kOff);
    const Planned same(story, snapshot.layer(0), tokens, NanPolicy::kExclude, Screening::kOn);
    ASSERT_TRUE(some.status.ok() && same.status.ok());
    EXPECT_TRUE(same_rows(same, some));
    EXPECT_EQ(same.done().groups_screened, 0);
  }
  EXPECT_GE(refused, 1);
}

TEST(Screening, AutomaticScreeningIsForManyRowsOverLongRunsOfBf16) {
  if (screen_native() == nullptr) GTEST_SKIP() << "no instruction for bf16";
  for (const DType dtype : {DType::kBf16, DType::kF32}) {
    GeometryOptions options = small_path(1, dtype);
    options.pooling = Pooling::kNone;
    options.index_rotary_dim = 0;
    options.index_heads = 16;
    options.index_dim = 32;
    const Story story(options, 8400, 311);
    HeldStory held(story, story.tokens());
    const Snapshot snapshot = held.snapshot();
    const auto planned = [&](std::int64_t first, std::int64_t count, Screening screening) {
      std::vector<std::int64_t> tokens;
      for (std::int64_t i = 0; i < count; ++i) tokens.push_back(first + i);
      return Planned(story, snapshot.layer(0), tokens, NanPolicy::kRefuse, screening);
    };
    const Planned long_run = planned(8384, 16, Screening::kAutomatic);
    const Planned full = planned(8384, 16, Screening::kOff);
    EXPECT_TRUE(same_rows(long_run, full));
    if (dtype == DType::kBf16) {
      EXPECT_TRUE(long_run.done().groups_screened == full.done().groups_scored || long_run.done().groups_screened == 0)
          << "0 where the instruction was measured to be no faster";
    } else {
      EXPECT_EQ(long_run.done().groups_screened, 0);
    }
    EXPECT_EQ(planned(8399, 1, Screening::kAutomatic).done().groups_screened, 0) << "few rows";
    EXPECT_EQ(planned(8100, 16, Screening::kAutomatic).done().groups_screened, 0) << "a short run";
    EXPECT_EQ(planned(8100, 1, Screening::kOn).done().groups_screened, 8101);
  }
}

TEST(Screening, ScratchForGroupsOfTheSetIsNoLargerThanTheRun) {
  GeometryOptions options = small_path(1, DType::kBf16);
  options.budget_tokens = std::int64_t{1} << 24;
  const Geometry geometry = *Geometry::admit(options);
  const auto bytes = [&](Screening screening) {
    return *Engine::host(serial_executor(), default_kernels(), screening)->bytes_for(geometry, {1000, 1, 1});
  };
  EXPECT_GT(bytes(Screening::kOn), bytes(Screening::kOff));
  EXPECT_LT(bytes(Screening::kOn), bytes(Screening::kOff) + 100'000);
}

}  // namespace
}  // namespace seriatim
