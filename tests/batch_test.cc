// A query's answer depends on nothing but its own sequence: not on neighbours, their order, or the number of threads.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "support/path.hpp"

namespace seriatim {
namespace {

using namespace testing;

constexpr std::int64_t kTokens = 200;

Story some_story(DType dtype = DType::kF32) { return Story(small_path(4, dtype), kTokens, 101); }

// Kind of vllm#57815 and #53257: another batch, other bits.
TEST(Batch, AQueryAloneEqualsItAmong64AndBesideALongerOne) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Story story = some_story(dtype);
    HeldStory held(story, kTokens);
    const Snapshot snapshot = held.snapshot();
    Engine engine = engine_for(story.geometry, kTokens);
    Random random(102);
    for (const std::int64_t token : {20, 90, 133, 198}) {
      Answers alone(story.geometry, 1);
      ASSERT_TRUE(ask(snapshot.layer(0), story, std::vector<std::int64_t>{token}, engine, alone).ok());

      Answers beside(story.geometry, 2);
      ASSERT_TRUE(ask(snapshot.layer(0), story, std::vector<std::int64_t>{199, token}, engine, beside).ok());
      EXPECT_TRUE(same_bits(beside.of(1), alone.of(0))) << "beside a longer one: token " << token;

      for (const std::int64_t place : {0, 31, 64}) {
        std::vector<std::int64_t> tokens(65);
        for (std::int64_t& other : tokens) other = random.below(kTokens);
        tokens[static_cast<std::size_t>(place)] = token;
        Answers among(story.geometry, 65);
        ASSERT_TRUE(ask(snapshot.layer(0), story, tokens, engine, among).ok());
        EXPECT_TRUE(same_bits(among.of(place), alone.of(0))) << "at place " << place << ": token " << token;
      }
    }
  }
}

TEST(Batch, TheSameQueryManyTimesGivesTheSameManyTimes) {
  const Story story = some_story();
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kTokens);
  Answers answers(story.geometry, 40);
  ASSERT_TRUE(ask(snapshot.layer(0), story, std::vector<std::int64_t>(40, 177), engine, answers).ok());
  for (std::int64_t q = 1; q < 40; ++q) EXPECT_TRUE(same_bits(answers.of(q), answers.of(0))) << q;
}

// Kind of llama.cpp#29166: two sequences in one cache, same positions, different keys.
TEST(Batch, ASequenceBesideAnotherInTheCacheAnswersAsIfAlone) {
  const Story story = some_story();
  Story other(small_path(), kTokens, 777);
  const Answers expected = one_call(story);
  HeldStory held(story, 0);
  const SequenceId beside = *held.cache().add(0);
  while (held.held() < kTokens) {
    auto transaction = held.cache().begin();
    const std::int64_t first = held.held();
    held.stage(*transaction, 8);
    ASSERT_TRUE(transaction->append(beside, 0, other.batch(first, 8)).ok());
    ASSERT_TRUE(transaction->commit().ok());
  }
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kTokens);
  Answers answers(story.geometry, kTokens);
  ASSERT_TRUE(ask(snapshot.layer(0), story, every_token(0, kTokens), engine, answers).ok());
  EXPECT_TRUE(same_answers(answers, expected));
}

TEST(Batch, LaterTokensInTheLayerChangeNothing) {
  const Story story = some_story();
  const Answers expected = one_call(story);
  HeldStory held(story, 130);
  const Snapshot snapshot = held.snapshot();
  Engine engine = engine_for(story.geometry, kTokens);
  Answers answers(story.geometry, 130);
  ASSERT_TRUE(ask(snapshot.layer(0), story, every_token(0, 130), engine, answers).ok());
  for (std::int64_t t = 0; t < 130; ++t) ASSERT_TRUE(same_bits(answers.of(t), expected.of(t))) << t;
}

// An engine's own pool: as many threads as asked for, more than there are cores or not.
class PlainThreads final : public Executor {
 public:
  explicit PlainThreads(int threads) : threads_(threads) {}
  int concurrency() const override { return threads_; }
  void run(std::int64_t units, Task& task) override {
    std::atomic<std::int64_t> next{0};
    std::vector<std::thread> threads;
    for (int worker = 0; worker < threads_; ++worker) {
      threads.emplace_back([&, worker] {
        for (std::int64_t unit = next++; unit < units; unit = next++) task.run(unit, worker);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  int threads_;
};

// Another: every unit in the least convenient order.
class BackwardExecutor final : public Executor {
 public:
  int concurrency() const override { return 3; }
  void run(std::int64_t units, Task& task) override {
    for (std::int64_t unit = units; unit-- > 0;) task.run(unit, static_cast<int>(unit % 3));
  }
};

TEST(Threads, OneToEightGiveTheSameBytes) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const Story story = some_story(dtype);
    const Answers expected = one_call(story);
    ASSERT_GT(sparse_rows(expected), 100);
    HeldStory held(story, kTokens);
    const Snapshot snapshot = held.snapshot();
    for (int threads = 1; threads <= 8; ++threads) {
      const auto pool = make_executor(threads);
      ASSERT_NE(pool, nullptr);
      EXPECT_LE(pool->concurrency(), threads);
      PlainThreads own(threads);
      for (Executor* executor : {pool.get(), static_cast<Executor*>(&own)}) {
        Engine engine = engine_for(story.geometry, kTokens, *executor);
        for (int turn = 0; turn < 3; ++turn) {
          Answers answers(story.geometry, kTokens);
          const Status status = ask(snapshot.layer(0), story, every_token(0, kTokens), engine, answers);
          ASSERT_TRUE(status.ok()) << status.message();
          EXPECT_TRUE(same_answers(answers, expected)) << threads << " threads";
        }
      }
    }
  }
}

TEST(Threads, UnitsInAnyOrderGiveTheSameBytes) {
  const Story story = some_story();
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  BackwardExecutor executor;
  Engine engine = engine_for(story.geometry, kTokens, executor);
  Answers answers(story.geometry, kTokens);
  ASSERT_TRUE(ask(snapshot.layer(0), story, every_token(0, kTokens), engine, answers).ok());
  EXPECT_TRUE(same_answers(answers, one_call(story)));
}

TEST(Threads, TheFirstOverflowIsReportedWhateverRanFirst) {
  Story story = some_story();
  for (const std::int64_t token : {50, 120, 121}) {
    for (const std::int64_t head : {1, 2}) story.queries.set((token * 4 + head) * 8, 3e38f);
  }
  for (std::int64_t row = 0; row < 2 * kTokens; ++row) story.keys.set(row * 8, 3.0f);
  HeldStory held(story, kTokens);
  const Snapshot snapshot = held.snapshot();
  BackwardExecutor backward;
  const auto threads = make_executor(4);
  Executor* executors[] = {&serial_executor(), &backward, threads.get()};
  std::uint64_t first_digest = 0;
  for (Executor* executor : executors) {
    Engine engine = engine_for(story.geometry, kTokens, *executor);
    Answers answers(story.geometry, kTokens);
    const Status status = ask(snapshot.layer(0), story, every_token(0, kTokens), engine, answers);
    EXPECT_TRUE(fails_with(status, Code::kOverflow, "output", 50, 1));
    for (std::int64_t t = 0; t < kTokens; ++t) {
      for (std::int64_t head = 0; head < 4; ++head) {
        const bool bad = (t == 50 || t == 120 || t == 121) && (head == 1 || head == 2);
        ASSERT_EQ(std::isnan(answers.output.get((t * 4 + head) * 6)), bad) << t << ", " << head;
        ASSERT_EQ(std::isnan(answers.lse.get(t * 4 + head)), bad) << t << ", " << head;
      }
    }
    const std::uint64_t digested = digest(answers.output.bytes());
    if (executor == executors[0]) first_digest = digested;
    EXPECT_EQ(digested, first_digest);
  }
}

}  // namespace
}  // namespace seriatim
