// Plan and attend over several ranks: the bits of one process, however the tokens are spread.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <mutex>
#include <random>

#include "seriatim/attend.hpp"
#include "shard/spread.hpp"
#include "support/sharded_story.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr Finish kFinishes[] = {Finish::kAuto, Finish::kGather, Finish::kChain};

// Rows of up to 300 entries: three splits.
GeometryOptions three_splits(std::int64_t group_tokens, DType dtype) {
  GeometryOptions options = small_path(group_tokens, dtype);
  options.budget_tokens = 300;
  return options;
}

// One latent of 72 dims, whose first 67 are the values, for 20 heads; keys arrive finished and heads are weighted.
GeometryOptions latent(DType dtype) {
  GeometryOptions options = three_splits(1, dtype);
  options.query_heads = 20;
  options.kv_heads = 1;
  options.head_dim = 72;
  options.value_dim = 67;
  options.values_alias_keys = true;
  return options;
}

std::vector<std::int64_t> asked_tokens(const Story& story) {
  std::vector<std::int64_t> tokens = every_token(story.tokens() - 24, 24);  // the end of a prompt
  for (const std::int64_t t : {0, 3, 130, 299, 302, 303, 305, 400}) tokens.push_back(t);
  return tokens;
}

struct Case {
  std::vector<std::int64_t> cuts;
  std::string what;
};

// Ranges of every awkward kind for 600 tokens and something.
std::vector<Case> awkward_ranges(std::int64_t tokens, std::int64_t r) {
  const std::int64_t end = tokens;
  const auto at = [r](std::int64_t token) { return token / r * r; };
  std::vector<Case> cases;
  cases.push_back({{}, "one rank"});
  cases.push_back({{at(300)}, "halves"});
  cases.push_back({{0}, "the first rank is empty"});
  cases.push_back({{end}, "the last rank is empty"});
  cases.push_back({{r}, "one group"});
  cases.push_back({{at(end - 1)}, "the tail alone, or one group"});
  cases.push_back({{at(70), at(500)}, "three ranks"});
  cases.push_back({{at(200), at(200)}, "an empty rank between"});
  cases.push_back({{at(64), at(64 + r), at(64 + 2 * r), at(64 + 3 * r)}, "four borders inside one split"});
  cases.push_back({{0, 0, end, end}, "all on the third of five"});
  cases.push_back({{at(100), at(200), at(250), at(300), at(400), at(420), at(590)}, "eight ranks"});
  cases.push_back({{0, at(40), at(44), at(44), at(500), end, end}, "eight ranks, some empty"});
  return cases;
}

void expect_as_one_process(const Story& story, NanPolicy nan = NanPolicy::kRefuse) {
  const std::vector<std::int64_t> tokens = asked_tokens(story);
  const auto queries = static_cast<std::int64_t>(tokens.size());
  const Asked asked(story, tokens);
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const LayerView whole = snapshot.layer(0);
  Answers due(story.geometry, queries);
  Engine engine = *Engine::host();
  ASSERT_TRUE(engine.plan(whole, asked.for_plan(), nan, due.rows_from(0)).ok());
  ASSERT_TRUE(
      engine.attend(whole, asked.for_attend(), due.rows_from(0), due.output.writable(), due.lse.writable()).ok());
  ASSERT_TRUE(varies(due.output.bytes()));
  ASSERT_GT(sparse_rows(due), 0);
  int finish = 0;
  for (const Case& c : awkward_ranges(story.tokens(), story.geometry.group_tokens())) {
    const auto ranks = static_cast<std::int64_t>(c.cuts.size()) + 1;
    const AttendOptions options{kFinishes[finish++ % 3], finish % 2 == 0 ? -1 : finish % static_cast<int>(ranks)};
    std::deque<Answers> got;
    for (std::int64_t k = 0; k < ranks; ++k) got.emplace_back(story.geometry, queries);
    const auto statuses = on_every_rank(some_ranks(ranks), [&](Group& group) {
      const StoryPart part(story, c.cuts, group.rank());
      ShardedEngine sharded(*Engine::host(), group);
      Answers& own = got[static_cast<std::size_t>(group.rank())];
      const ShardedPlanAsk plan{&part.layer(), asked.for_plan()};
      if (Status s = sharded.plan({&plan, 1}, nan, own.rows_from(0)); !s.ok()) return s;
      const ShardedAttendAsk attend{&part.layer(), asked.for_attend()};
      return sharded.attend({&attend, 1}, own.rows_from(0), own.output.writable(), own.lse.writable(), options);
    });
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_TRUE(statuses[k].ok()) << c.what << ", rank " << k << ": " << statuses[k].message();
      ASSERT_TRUE(same_bits(got[k].rows, due.rows)) << c.what << ", rank " << k;
      ASSERT_TRUE(same_bytes<std::int32_t>(got[k].counts, due.counts)) << c.what;
      if (options.result >= 0 && options.result != static_cast<int>(k)) {
        EXPECT_TRUE(got[k].outputs_untouched()) << c.what;
        continue;
      }
      ASSERT_TRUE(same_answers(got[k], due)) << c.what << ", rank " << k;
    }
  }
}

TEST(Shard, RowsAndOutputsAreThoseOfOneProcessHoweverTheTokensAreSpread) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const std::int64_t r : {1, 4}) {
      Story story(three_splits(r, dtype), 607, 900 + static_cast<std::uint64_t>(r), 12);
      if (r == 4) story.sinks = {0.5f, -1.0f, 2.0f, 0.0f};
      expect_as_one_process(story);
    }
    expect_as_one_process(Story(latent(dtype), 601, 910));
  }
}

// Scores of a few values only: the cut falls among equals on several ranks.
TEST(Shard, TiesAtTheCutFallAsInOneProcess) {
  Story story(three_splits(1, DType::kF32), 607, 920);
  std::mt19937 random(5);
  for (std::int64_t t = 0; t < story.tokens(); ++t) {
    const float level = static_cast<float>(random() % 3) - 1.0f;
    for (std::int64_t i = 0; i < story.geometry.index_dim(); ++i)
      story.index_keys.set(t * 8 + i, i == 7 ? level : 0.0f);
  }
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
    story.index_queries.set(i, i % 8 == 7 ? 1.0f : 0.0f);
  expect_as_one_process(story);
}

TEST(Shard, AllChosenGroupsMayLieOnOneRank) {
  Story story(three_splits(4, DType::kF32), 607, 930);
  for (std::int64_t t = 0; t < story.tokens(); ++t) {
    // After the rotation nothing but what passes through decides.
    for (std::int64_t i = 0; i < 8; ++i) story.index_keys.set(t * 8 + i, i == 7 ? (t >= 304 ? 1.0f : -1.0f) : 0.0f);
  }
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
    story.index_queries.set(i, i % 8 == 7 ? 1.0f : 0.0f);
  expect_as_one_process(story);
}

// Pooling `none`, no relu: one head's dot product with a large key passes f32 upwards, another's downwards.
Story with_nans() {
  GeometryOptions options = three_splits(1, DType::kF32);
  options.pooling = Pooling::kNone;
  options.index_rotary_dim = 0;
  options.relu = false;
  Story story(options, 607, 940);
  for (const std::int64_t t : {31, 250, 251, 480}) {
    for (std::int64_t i = 0; i < 8; ++i) story.index_keys.set(t * 8 + i, 3e38f);
  }
  for (std::int64_t i = 0; i < story.index_queries.elements(); ++i)
    story.index_queries.set(i, i / 8 % 3 == 1 ? -2.0f : 2.0f);
  return story;
}

TEST(Shard, NanGroupsAreLeftOutOrNamedAsInOneProcess) {
  Story story = with_nans();
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  const Asked asked(story, std::vector<std::int64_t>{20, 606, 305, 490});
  Answers due(story.geometry, 4);
  Engine engine = *Engine::host();
  const Status refused = engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, due.rows_from(0));
  ASSERT_TRUE(fails_with(refused, Code::kNotANumber, "scores", 1, 31)) << refused.message();
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kExclude, due.rows_from(0)).ok());
  EXPECT_EQ(due.counts, (std::vector<std::int32_t>{21, 300, 300, 300}));
  for (const Case& c : awkward_ranges(story.tokens(), 1)) {
    std::deque<Answers> got;
    for (std::size_t k = 0; k <= c.cuts.size(); ++k) got.emplace_back(story.geometry, 4);
    const auto statuses = on_every_rank(some_ranks(static_cast<std::int64_t>(got.size())), [&](Group& group) -> Status {
      const StoryPart part(story, c.cuts, group.rank());
      ShardedEngine sharded(*Engine::host(), group);
      Answers& own = got[static_cast<std::size_t>(group.rank())];
      const ShardedPlanAsk plan{&part.layer(), asked.for_plan()};
      const Status nan = sharded.plan({&plan, 1}, NanPolicy::kRefuse, own.rows_from(0));
      EXPECT_TRUE(fails_with(nan, Code::kNotANumber, "scores", 1, 31)) << c.what << ": " << nan.message();
      EXPECT_EQ(nan.message(), refused.message());
      EXPECT_TRUE(own.rows_untouched());
      return sharded.plan({&plan, 1}, NanPolicy::kExclude, own.rows_from(0));
    });
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_TRUE(statuses[k].ok()) << statuses[k].message();
      ASSERT_TRUE(same_bits(got[k].rows, due.rows)) << c.what;
    }
  }
}

TEST(Shard, ManySequencesShareACallAndAnAsklessCallIsDone) {
  std::deque<Story> stories;
  std::deque<Asked> asked;
  const std::vector<std::vector<std::int64_t>> cuts{{40, 80}, {0, 200}, {100, 100}, {300, 400}};
  std::int64_t queries = 0;
  std::vector<std::int64_t> lengths{121, 307, 100, 500};
  for (std::size_t s = 0; s < 4; ++s) {
    stories.emplace_back(small_path(4, DType::kBf16), lengths[s], 950 + s, static_cast<std::int64_t>(s) * 5);
    if (s == 1) stories.back().sinks = {0.5f, -1.0f, 2.0f, 0.0f};
    const std::int64_t count = s == 2 ? 0 : 1 + 20 * static_cast<std::int64_t>(s);
    asked.emplace_back(stories.back(), every_token(lengths[s] - count, count));
    queries += count;
  }
  Answers due(stories[0].geometry, queries);
  std::deque<HeldStory> held;
  std::int64_t first = 0;
  Engine engine = *Engine::host();
  for (std::size_t s = 0; s < 4; ++s) {
    held.emplace_back(stories[s], lengths[s]);
    const Snapshot snapshot = held.back().snapshot();
    const std::int64_t count = s == 2 ? 0 : 1 + 20 * static_cast<std::int64_t>(s);
    ASSERT_TRUE(ask(snapshot.layer(0), stories[s], every_token(lengths[s] - count, count), engine, due, first).ok());
    first += count;
  }
  const auto statuses = on_every_rank(some_ranks(3), [&](Group& group) -> Status {
    std::deque<StoryPart> parts;
    std::vector<ShardedPlanAsk> plans;
    std::vector<ShardedAttendAsk> attends;
    for (std::size_t s = 0; s < 4; ++s) {
      parts.emplace_back(stories[s], cuts[s], group.rank());
      plans.push_back({&parts.back().layer(), asked[s].for_plan()});
      attends.push_back({&parts.back().layer(), asked[s].for_attend()});
    }
    ShardedEngine sharded(*Engine::host(), group);
    if (Status s = sharded.plan({}, NanPolicy::kRefuse, {}); !s.ok()) return s;
    if (Status s = sharded.attend({}, {}, {}, {}); !s.ok()) return s;
    for (const Finish finish : kFinishes) {
      Answers got(stories[0].geometry, queries);
      if (Status s = sharded.plan(plans, NanPolicy::kRefuse, got.rows_from(0)); !s.ok()) return s;
      if (Status s = sharded.attend(attends, got.rows_from(0), got.output.writable(), got.lse.writable(), {finish, -1});
          !s.ok())
        return s;
      EXPECT_TRUE(same_answers(got, due));
    }
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(Shard, AnOverflowIsNamedOnEveryRankAndAllElseIsRight) {
  Story story(three_splits(4, DType::kF32), 607, 960);
  for (std::int64_t i = 0; i < 8; ++i) story.queries.set((590 * 4 + 3) * 8 + i, 3e38f);
  const Asked asked(story, std::vector<std::int64_t>{606, 590, 100});
  HeldStory held(story, story.tokens());
  const Snapshot snapshot = held.snapshot();
  Answers due(story.geometry, 3);
  Engine engine = *Engine::host();
  ASSERT_TRUE(engine.plan(snapshot.layer(0), asked.for_plan(), NanPolicy::kRefuse, due.rows_from(0)).ok());
  const Status single =
      engine.attend(snapshot.layer(0), asked.for_attend(), due.rows_from(0), due.output.writable(), due.lse.writable());
  ASSERT_TRUE(fails_with(single, Code::kOverflow, "output", 1, 3));
  for (const Finish finish : {Finish::kGather, Finish::kChain}) {
    for (const int result : {-1, 1}) {
      const auto statuses = on_every_rank(some_ranks(3), [&](Group& group) -> Status {
        const StoryPart part(story, {200, 304}, group.rank());
        ShardedEngine sharded(*Engine::host(), group);
        Answers got(story.geometry, 3);
        const ShardedPlanAsk plan{&part.layer(), asked.for_plan()};
        if (Status s = sharded.plan({&plan, 1}, NanPolicy::kRefuse, got.rows_from(0)); !s.ok()) return s;
        const ShardedAttendAsk attend{&part.layer(), asked.for_attend()};
        const Status status =
            sharded.attend({&attend, 1}, got.rows_from(0), got.output.writable(), got.lse.writable(), {finish, result});
        if (result < 0 || group.rank() == result) {
          EXPECT_TRUE(same_answers(got, due));
        } else {
          EXPECT_TRUE(got.outputs_untouched());
        }
        return status;
      });
      for (const Status& status : statuses) {
        EXPECT_TRUE(fails_with(status, Code::kOverflow, "output", 1, 3));
        EXPECT_EQ(status.message(), single.message());
      }
    }
  }
}

TEST(Shard, ARefusalOfOneRankIsTheSameErrorOnAllAndNamesIt) {
  Story story(three_splits(4, DType::kF32), 607, 970);
  const Asked asked(story, std::vector<std::int64_t>{606});
  const auto statuses = on_every_rank(some_ranks(3), [&](Group& group) -> Status {
    StoryPart part(story, {200, 304}, group.rank());
    ShardedEngine sharded(*Engine::host(), group);
    Answers got(story.geometry, 1);
    const ShardedPlanAsk plan{&part.layer(), asked.for_plan()};
    // Alike on all ranks: the error of one process.
    Rows none;
    EXPECT_EQ(sharded.plan({&plan, 1}, NanPolicy::kRefuse, none).message(),
              "rows: no memory, or a stride of 0 where 303 is needed");
    // On one rank.
    if (group.rank() == 1) ++part.layer().borders[1];
    const Status refused = sharded.plan({&plan, 1}, NanPolicy::kRefuse, got.rows_from(0));
    EXPECT_TRUE(got.rows_untouched());
    if (group.rank() == 1) --part.layer().borders[1];
    // The arguments of one rank differ.
    const NanPolicy policy = group.rank() == 2 ? NanPolicy::kExclude : NanPolicy::kRefuse;
    const Status other = sharded.plan({&plan, 1}, policy, got.rows_from(0));
    EXPECT_TRUE(got.rows_untouched());
    EXPECT_TRUE(fails_with(other, Code::kInvalidArgument, "nan", -1, 2)) << other.message();
    // The order of calls differs.
    const ShardedAttendAsk attend{&part.layer(), asked.for_attend()};
    const Status order = group.rank() == 1 ? sharded.attend({&attend, 1}, got.rows_from(0), got.output.writable(), {})
                                           : sharded.plan({&plan, 1}, NanPolicy::kRefuse, got.rows_from(0));
    EXPECT_EQ(order.code(), Code::kInvalidArgument);
    return refused;
  });
  for (const Status& status : statuses) {
    EXPECT_TRUE(fails_with(status, Code::kInvalidArgument, "layer"));
    EXPECT_NE(status.message().find("rank 1: "), std::string_view::npos) << status.message();
  }
}

TEST(Spread, ASplitIsReducedByTheRankThatHoldsTheMostOfIt) {
  std::vector<std::int32_t> row(300);
  std::iota(row.begin(), row.end(), 1000);
  const std::vector<std::int64_t> borders{1000, 1060, 1060, 1130, 1290, 1300};
  const RowSpread spread = spread_row(row, borders);
  EXPECT_EQ(spread.entries, (std::vector<std::int64_t>{0, 60, 60, 130, 290, 300}));
  EXPECT_EQ(spread.splits, (std::vector<std::int64_t>{0, 0, 0, 1, 3, 3}));
  ASSERT_EQ(spread.pieces.size(), 3U);
  const auto is = [&](std::size_t i, int from, int to, std::int64_t split, std::int64_t first, std::int64_t count) {
    const SplitPiece& p = spread.pieces[i];
    return p.from == from && p.to == to && p.split == split && p.first == first && p.count == count;
  };
  EXPECT_TRUE(is(0, 0, 2, 0, 0, 60));
  EXPECT_TRUE(is(1, 2, 3, 1, 128, 2));
  EXPECT_TRUE(is(2, 4, 3, 2, 290, 10));
  EXPECT_TRUE(spread_row({}, borders).pieces.empty());
}

}  // namespace
}  // namespace seriatim
