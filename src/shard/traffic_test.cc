// What is sent is what docs/sharding.md says: messages and bytes of every rank, counted.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>

#include "seriatim/attend.hpp"
#include "shard/spread.hpp"
#include "support/sharded_story.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kRanks = 4;

struct Formula {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  void add(std::int64_t count, std::int64_t size) {
    messages += count;
    bytes += count * size;
  }
};

Formula plan_formula(const Geometry& g, std::span<const std::int64_t> visible) {
  std::int64_t block = 40 + 16;
  for (const std::int64_t n : visible) {
    if (g.groups(n) > g.budget_groups()) block += 4 + 8 * g.budget_groups();
  }
  Formula sent;
  sent.add(kRanks - 1, block);
  return sent;
}

// Of a rank, with the result on every rank. The finisher is the rank with the most splits, or the last with any.
Formula attend_formula(const Story& story, const Answers& answers, std::span<const std::int64_t> borders, int rank,
                       bool chain) {
  const Geometry& g = story.geometry;
  const auto queries = static_cast<std::int64_t>(answers.counts.size());
  const std::int64_t partial = 4 * g.query_heads() * (2 + g.value_dim());
  const std::int64_t token = dtype_bytes(g.kv_dtype()) * g.kv_heads() * (g.head_dim() + g.value_dim());
  Formula sent;
  sent.add(kRanks - 1, 40);
  std::vector<std::int64_t> pieces(kRanks);
  std::vector<std::int64_t> splits(kRanks);
  for (std::int64_t q = 0; q < queries; ++q) {
    const RowSpread spread = spread_row(answers.row(q), borders);
    for (const SplitPiece& piece : spread.pieces) {
      if (piece.from == rank) pieces[static_cast<std::size_t>(piece.to)] += piece.count;
    }
    for (int k = 0; k < kRanks; ++k) splits[static_cast<std::size_t>(k)] += spread.splits_of(k);
  }
  for (const std::int64_t entries : pieces) {
    if (entries > 0) sent.add(1, entries * token);
  }
  std::size_t finisher = 0;
  for (std::size_t k = 0; k < kRanks; ++k) {
    if (chain ? splits[k] > 0 : splits[k] > splits[finisher]) finisher = k;
  }
  const auto own = static_cast<std::size_t>(rank);
  if (own == finisher) {
    sent.add(kRanks - 1, 16 + queries * (4 * g.query_heads() * g.value_dim() + 4 * g.query_heads()));
  } else if (splits[own] > 0) {
    sent.add(1, chain ? queries * partial : splits[own] * partial);
  }
  return sent;
}

TEST(Traffic, IsWhatTheFormulasSay) {
  GeometryOptions options = small_path(4, DType::kBf16);
  options.budget_tokens = 300;
  const Story story(options, 607, 990);
  const std::vector<std::int64_t> tokens{606, 500, 301, 100};
  const std::vector<std::int64_t> visible{607, 501, 302, 101};
  const Asked asked(story, tokens);
  const std::vector<std::int64_t> cuts{100, 220, 440};
  for (const bool chain : {false, true}) {
    std::atomic<int> looked = 0;
    const auto statuses = on_every_rank(some_ranks(kRanks), [&](Group& group) -> Status {
      const StoryPart part(story, cuts, group.rank());
      ShardedEngine engine(*Engine::host(), group);
      Answers got(story.geometry, 4);
      const Traffic& traffic = group.transport().traffic();
      Traffic before = traffic;
      const ShardedPlanAsk plan{&part.layer(), asked.for_plan()};
      if (Status s = engine.plan({&plan, 1}, NanPolicy::kRefuse, got.rows_from(0)); !s.ok()) return s;
      const Formula planned = plan_formula(story.geometry, visible);
      EXPECT_EQ(traffic.messages - before.messages, planned.messages);
      EXPECT_EQ(traffic.bytes - before.bytes, planned.bytes);
      before = traffic;
      const ShardedAttendAsk attend{&part.layer(), asked.for_attend()};
      if (Status s = engine.attend({&attend, 1}, got.rows_from(0), got.output.writable(), got.lse.writable(),
                                   {chain ? Finish::kChain : Finish::kGather, -1});
          !s.ok())
        return s;
      const Formula attended = attend_formula(story, got, part.layer().borders, group.rank(), chain);
      EXPECT_EQ(traffic.messages - before.messages, attended.messages) << "rank " << group.rank();
      EXPECT_EQ(traffic.bytes - before.bytes, attended.bytes) << "rank " << group.rank();
      ++looked;
      return {};
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(looked, kRanks);
  }
}

}  // namespace
}  // namespace seriatim
