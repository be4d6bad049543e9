// A sharded cache against one cache: the same programs of calls give the same states, refusals and ids, whatever the
// number of ranks; and a rank that is lost at any message leaves every rank before or after the call.
#include "seriatim/shard_cache.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "support/sharded_story.hpp"
#include "support/sharded_world.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Runs the program on every rank; gives how many messages the rank that sent the most has sent.
std::int64_t run_on(const World& world, const ThreadTransports& transports) {
  std::atomic<std::int64_t> most = 0;
  const auto statuses = on_every_rank(transports, [&](Group& group) -> Status {
    auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
    if (!cache.ok()) return cache.status();
    for (std::size_t i = 0; i < world.steps.size(); ++i) {
      const Status status = run_step(**cache, world, i);
      EXPECT_EQ(status.code(), world.answers[i].code()) << "step " << i << ": " << status.message();
      EXPECT_EQ(status.message(), world.answers[i].message());
      const auto right = is_after(**cache, world, static_cast<std::int64_t>(i));
      EXPECT_TRUE(right) << "step " << i << " on rank " << group.rank() << " of " << group.size();
      if (!right || status.code() != world.answers[i].code()) return status;
    }
    std::int64_t sent = group.transport().traffic().messages;
    for (std::int64_t before = most; before < sent && !most.compare_exchange_weak(before, sent);) {
    }
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return most;
}

TEST(ShardedPrograms, GiveTheStatesAndRefusalsOfOneCache) {
  std::int64_t refused = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    const World world = random_world(seed, 40);
    for (const Status& status : world.answers) refused += status.ok() ? 0 : 1;
    run_on(world, some_ranks(1 + static_cast<std::int64_t>(seed % 5)));
    if (HasFailure()) {
      FAIL() << "seed " << seed;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(ShardedCalls, AKeyThatIsNotFiniteIsNamedByItsTokenOfTheCallNotOfTheRanksPart) {
  const World world = random_world(3, 1);
  for (const bool from_holder : {false, true}) {
    const auto statuses = on_every_rank(some_ranks(2), [&](Group& group) {
      auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
      const std::int64_t cut = 32;
      const SequenceId id = *(*cache)->add(0, {&cut, 1});
      cache_testing::Batch batch =
          cache_testing::make_batch(world.geometry, 0, 0, cache_testing::ids(1, 64), world.options.layers[0].indexed);
      std::fill_n(batch.keys.begin() + static_cast<std::ptrdiff_t>(batch.keys.size() / 64 * 40), 4, std::byte{0xff});
      auto step = (*cache)->begin();
      if (from_holder) return step->append_from(0, id, 0, 0, 64, group.rank() == 0 ? batch.view : TokenBatch{});
      return step->append(id, 0, batch.view);
    });
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), Code::kNotFinite);
      EXPECT_EQ(status.message(), "rank 1: keys: element 0 of token 40 is not finite");
      EXPECT_EQ(status.place().row, 40);
    }
  }
}

// A rank that lacks memory for a message of a call.
class WithoutMemoryToSend final : public Transport {
 public:
  explicit WithoutMemoryToSend(std::shared_ptr<Transport> by) : by_(std::move(by)) {}
  int rank() const override { return by_->rank(); }
  int size() const override { return by_->size(); }
  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override {
    return by_->all_gather(block, blocks);
  }
  Status send(int, std::span<const std::byte>) override {
    return Status::error(Code::kOutOfMemory, "bytes", "bytes: no memory");
  }
  Status receive(int from, std::span<std::byte> bytes) override { return by_->receive(from, bytes); }
  Status broadcast(int root, std::span<std::byte> bytes) override { return by_->broadcast(root, bytes); }

 private:
  std::shared_ptr<Transport> by_;
};

TEST(ShardedCalls, ARankThatCannotSendWhatItOwesLeavesTheGroupAndTheOthersCallsEnd) {
  const World world = random_world(3, 1);
  for (const bool moves : {false, true}) {
    const auto transports = ThreadTransports::make(2, std::chrono::milliseconds(300));
    std::vector<Status> during(2);
    std::vector<Status> after(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto own = static_cast<std::size_t>(rank);
        std::shared_ptr<Transport> end = transports->at(rank);
        if (rank == 1) end = std::make_shared<WithoutMemoryToSend>(end);
        auto group = Group::meet(end, Call("test"));
        auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, *group);
        const SequenceId id = *(*cache)->add();  // every token on rank 1
        const auto batch = [&](std::int64_t layer) {
          return cache_testing::make_batch(world.geometry, layer, 0, cache_testing::ids(1, 64),
                                           world.options.layers[static_cast<std::size_t>(layer)].indexed);
        };
        {
          auto step = (*cache)->begin();
          for (std::int64_t layer = 0; layer < kLayers; ++layer)
            EXPECT_TRUE(step->append(id, layer, batch(layer).view).ok());
          EXPECT_TRUE(step->commit().ok());
        }
        const std::int64_t cut = 32;
        if (moves) {
          during[own] = (*cache)->rebalance(id, {&cut, 1});
        } else {
          const SequenceId two = *(*cache)->add(0, {&cut, 1});
          auto step = (*cache)->begin();
          const cache_testing::Batch tokens = batch(0);
          during[own] = step->append_from(1, two, 0, 0, 64, rank == 1 ? tokens.view : TokenBatch{});
        }
        after[own] = (*cache)->fork(id).status();
        EXPECT_EQ((*cache)->snapshot(id)->run().tokens, 64);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& statuses : {during, after}) {
      EXPECT_EQ(statuses[0].code(), Code::kPeerLost) << statuses[0].message();
      EXPECT_EQ(statuses[1].code(), Code::kOutOfMemory) << statuses[1].message();
    }
  }
}

// A lost or dropped message at every place of a program, one at a time: the ranks' calls end in PeerLost, and each
// rank holds what the one cache held before that call or after it.
TEST(ShardedPrograms, ARankLostAtAnyMessageLeavesEveryRankBeforeOrAfterTheCall) {
  std::mt19937_64 random(77);
  std::int64_t lost = 0;
  for (std::uint64_t seed = 31; seed <= 33; ++seed) {
    const World world = random_world(seed, 16);
    const std::int64_t ranks = 2 + static_cast<std::int64_t>(seed % 3);
    const std::int64_t messages = run_on(world, some_ranks(ranks));
    for (std::int64_t n = static_cast<std::int64_t>(random() % 5); n < messages; n += 2) {
      ThreadTransports transports = *ThreadTransports::make(static_cast<int>(ranks), std::chrono::milliseconds(100));
      const bool drop = n % 3 == 0;
      transports.at_message(static_cast<int>(random() % static_cast<std::uint64_t>(ranks)), n,
                            drop ? ThreadTransports::Fault::kDrop : ThreadTransports::Fault::kFail);
      std::atomic<int> ended = 0;
      (void)on_every_rank(transports, [&](Group& group) -> Status {
        auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
        if (!cache.ok()) return cache.status();
        for (std::size_t i = 0; i < world.steps.size(); ++i) {
          const Status status = run_step(**cache, world, i);
          const auto at = static_cast<std::int64_t>(i);
          if (status.code() == world.answers[i].code()) {
            EXPECT_TRUE(is_after(**cache, world, at)) << "step " << i;
            continue;
          }
          EXPECT_EQ(status.code(), Code::kPeerLost) << status.message();
          EXPECT_TRUE(is_after(**cache, world, at - 1) || is_after(**cache, world, at)) << "step " << i;
          // No call that follows does anything.
          const Status again = (*cache)->add(0).status();
          EXPECT_EQ(again.code(), Code::kPeerLost);
          ++ended;
          return status;
        }
        return {};
      });
      lost += ended;
      if (HasFailure()) {
        FAIL() << "seed " << seed << ", message " << n;
      }
    }
  }
  EXPECT_GT(lost, 40);
}

// A prompt in chunks and decoding across borders, planned and attended before the commit.
TEST(ShardedCacheStep, StagedTokensArePlannedAndAttendedAsInOneProcess) {
  for (const std::int64_t r : {1, 4}) {
    const Story story(small_path(r, DType::kBf16), 330, 980, 8);
    const Answers due = one_call(story);
    for (const bool even : {false, true}) {
      const auto statuses = on_every_rank(some_ranks(3), [&](Group& group) -> Status {
        ShardedCacheOptions options;
        options.cache.layers[0].index_norm_weight = story.norm_weight;
        options.cache.capacity_tokens = 4096;
        auto cache = ShardedCache::create(story.geometry, options, group);
        if (!cache.ok()) return cache.status();
        const std::vector<std::int64_t> cuts{8 + 100, 8 + 104};
        const SequenceId sequence = *(*cache)->add(8, even ? std::span<const std::int64_t>() : cuts);
        ShardedEngine engine(*Engine::host(), group);
        Answers got(story.geometry, story.tokens());
        std::int64_t done = 0;
        for (const std::int64_t chunk : {90, 30, 5, 1, 1, 1, 170, 1, 1, 30}) {
          auto transaction = (*cache)->begin();
          if (!transaction.ok()) return transaction.status();
          if (Status s = transaction->append(sequence, 0, story.batch(done, chunk)); !s.ok()) return s;
          const auto layer = transaction->layer(sequence, 0);
          if (!layer.ok()) return layer.status();
          const Asked asked(story, every_token(done, chunk));
          const ShardedPlanAsk plan{&*layer, asked.for_plan()};
          if (Status s = engine.plan({&plan, 1}, NanPolicy::kRefuse, got.rows_from(done)); !s.ok()) return s;
          const ShardedAttendAsk attend{&*layer, asked.for_attend()};
          if (Status s = engine.attend({&attend, 1}, got.rows_from(done), got.output.writable_rows(done, chunk),
                                       got.lse.writable_rows(done, chunk));
              !s.ok())
            return s;
          if (Status s = transaction->commit(); !s.ok()) return s;
          done += chunk;
          if (even) {
            if (Status s = (*cache)->rebalance(sequence); !s.ok()) return s;
          }
        }
        EXPECT_EQ(done, story.tokens());
        EXPECT_TRUE(same_answers(got, due));
        return {};
      });
      for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    }
  }
}

}  // namespace
}  // namespace seriatim
