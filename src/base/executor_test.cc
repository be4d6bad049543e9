#include "seriatim/executor.hpp"

#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace seriatim {
namespace {

// Counts how often each unit runs and whether a worker is ever used by two units at once.
class Census final : public Task {
 public:
  Census(std::int64_t units, int workers, std::function<void(std::int64_t)> work = {})
      : runs_(static_cast<std::size_t>(units)), busy_(static_cast<std::size_t>(workers)), work_(std::move(work)) {}

  void perform(std::int64_t unit, int worker) override {
    if (worker < 0 || static_cast<std::size_t>(worker) >= busy_.size()) {
      strangers.fetch_add(1);
      return;
    }
    auto& busy = busy_[static_cast<std::size_t>(worker)];
    if (busy.exchange(true)) shared_workers.fetch_add(1);
    runs_.at(static_cast<std::size_t>(unit)).fetch_add(1);
    if (work_) work_(unit);
    busy.store(false);
  }

  void expect_each_unit_once() const {
    EXPECT_FALSE(runs_.empty());
    for (std::size_t unit = 0; unit < runs_.size(); ++unit) EXPECT_EQ(runs_[unit].load(), 1) << "unit " << unit;
    EXPECT_EQ(strangers.load(), 0) << "units with a worker outside 0 .. concurrency - 1";
    EXPECT_EQ(shared_workers.load(), 0) << "units that shared a worker with a running one";
  }

  std::atomic<int> strangers{0};
  std::atomic<int> shared_workers{0};

 private:
  std::vector<std::atomic<int>> runs_;
  std::vector<std::atomic<bool>> busy_;
  std::function<void(std::int64_t)> work_;
};

void spin(std::int64_t steps) {
  std::atomic<std::int64_t> count{0};
  while (count.fetch_add(1) < steps) {
  }
}

// The parameter: 0 for the serial executor, else the threads of make_executor.
class Executors : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() == 0) return;
    made_ = make_executor(GetParam());
    ASSERT_NE(made_, nullptr);
  }
  Executor& executor() { return made_ ? *made_ : serial_executor(); }

 private:
  // Eight threads even where there are fewer cores, so that what takes three threads to go wrong can.
  tbb::global_control threads_{tbb::global_control::max_allowed_parallelism, 8};
  std::unique_ptr<Executor> made_;
};

INSTANTIATE_TEST_SUITE_P(Threads, Executors, testing::Values(0, 1, 2, 3, 8),
                         [](const auto& threads) { return std::to_string(threads.param); });

TEST_P(Executors, HaveTheConcurrencyTheyWereAskedFor) {
  EXPECT_EQ(executor().concurrency(), GetParam() == 0 ? 1 : GetParam());
}

TEST_P(Executors, RunEachUnitOnceWithAWorkerOfItsOwn) {
  for (const std::int64_t units : {1, 2, 7, 1000}) {
    Census census(units, executor().concurrency(), [](std::int64_t unit) { spin(unit % 50); });
    executor().run(units, census);
    census.expect_each_unit_once();
  }
}

TEST_P(Executors, RunNothingForNoUnits) {
  class Forbidden final : public Task {
   public:
    void perform(std::int64_t, int) override { ADD_FAILURE() << "there is no unit"; }
  } forbidden;
  executor().run(0, forbidden);
}

TEST_P(Executors, AreDoneWhenTheyReturn) {
  std::vector<std::int64_t> squares(500, -1);
  class Square final : public Task {
   public:
    explicit Square(std::vector<std::int64_t>& out) : out_(out) {}
    void perform(std::int64_t unit, int) override { out_[static_cast<std::size_t>(unit)] = unit * unit; }

   private:
    std::vector<std::int64_t>& out_;
  } square(squares);
  executor().run(500, square);
  for (std::int64_t unit = 0; unit < 500; ++unit) ASSERT_EQ(squares[static_cast<std::size_t>(unit)], unit * unit);
}

// While an inner run waits, its thread must not take up another outer unit: the worker's scratch is in use.
TEST_P(Executors, ATaskInsideATaskLeavesTheOuterWorkersAlone) {
  std::atomic<int> inner_runs{0};
  for (int round = 0; round < 40; ++round) {
    Census outer(400, executor().concurrency(), [&](std::int64_t outer_unit) {
      if (outer_unit % 8 != 0) return spin(500 * (outer_unit % 3));
      Census inner(6, executor().concurrency(), [](std::int64_t unit) { spin(3000 * (unit % 3)); });
      executor().run(6, inner);
      inner.expect_each_unit_once();
      inner_runs.fetch_add(1);
    });
    executor().run(400, outer);
    outer.expect_each_unit_once();
  }
  EXPECT_EQ(inner_runs.load(), 2000);
}

TEST_P(Executors, ServeSeveralThreadsAtOnce) {
  std::vector<std::thread> users;
  std::atomic<int> served{0};
  for (int user = 0; user < 6; ++user) {
    users.emplace_back([&] {
      for (int call = 0; call < 20; ++call) {
        Census census(50, executor().concurrency(), [](std::int64_t unit) { spin(20 * (unit % 5)); });
        executor().run(50, census);
        census.expect_each_unit_once();
        served.fetch_add(1);
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(served.load(), 120);
}

TEST(Executor, ByDefaultTakesAtLeastOneThread) {
  const auto executor = make_executor();
  ASSERT_NE(executor, nullptr);
  EXPECT_GE(executor->concurrency(), 1);
}

TEST(Executor, AbsurdThreadCountsAreServedByWhatThereCanBe) {
  for (const int threads : {100000, std::numeric_limits<int>::max()}) {
    const auto executor = make_executor(threads);
    ASSERT_NE(executor, nullptr);
    EXPECT_EQ(executor->concurrency(), make_executor(0)->concurrency()) << "more threads than the process may use";
    Census census(100, executor->concurrency());
    executor->run(100, census);
    census.expect_each_unit_once();
  }
  EXPECT_EQ(make_executor(-1)->concurrency(), make_executor(0)->concurrency());
}

TEST(Executor, TheSerialOneRunsInOrderOnTheCallersThread) {
  class Order final : public Task {
   public:
    void perform(std::int64_t unit, int worker) override {
      EXPECT_EQ(worker, 0);
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(unit, next++);
    }
    std::thread::id caller = std::this_thread::get_id();
    std::int64_t next = 0;
  } order;
  serial_executor().run(9, order);
  EXPECT_EQ(order.next, 9);
}

}  // namespace
}  // namespace seriatim
