#include "base/float_environment.hpp"

#include <gtest/gtest.h>
#include <oneapi/tbb/global_control.h>

#include <atomic>
#include <bit>
#include <thread>
#include <vector>

#include "seriatim/executor.hpp"
#include "support/foreign_float_environment.hpp"

namespace seriatim {
namespace {

using testing::Foreign;
using testing::foreign_name;
using testing::ForeignFloatEnvironment;
using testing::kEveryForeign;

// What an environment can change: a sum that is rounded, a product below the normal numbers, a subnormal operand.
struct Sums {
  std::uint32_t rounded = 0;
  std::uint32_t product = 0;
  std::uint32_t subnormal = 0;
  friend bool operator==(const Sums&, const Sums&) = default;
};

[[gnu::noinline]] Sums sums_of(const volatile float* of) {
  const float rounded = of[0] + of[1];
  const float product = of[2] * of[2];
  const float subnormal = of[3] * of[4];
  return {std::bit_cast<std::uint32_t>(rounded), std::bit_cast<std::uint32_t>(product),
          std::bit_cast<std::uint32_t>(subnormal)};
}

const volatile float kOperands[] = {1.0f, 0x1.8p-24f, 0x1p-70f, 0x1p-140f, 3.0f};

[[gnu::noinline]] Sums guarded_sums() {
  DefaultFloatEnvironment environment;
  return sums_of(kOperands);
}

TEST(FloatEnvironment, WithoutTheGuardTheseSumsChange) {
  const Sums usual = sums_of(kOperands);
  for (const Foreign foreign : {Foreign::kFlush, Foreign::kDown, Foreign::kUp}) {
    Sums sums;
    {
      ForeignFloatEnvironment environment(foreign);
      sums = sums_of(kOperands);
    }
    EXPECT_EQ(sums == usual, foreign == Foreign::kUp) << foreign_name(foreign);
  }
}

TEST(FloatEnvironment, TheGuardGivesOneAnswerInEveryEnvironment) {
  const Sums usual = guarded_sums();
  EXPECT_EQ(usual, sums_of(kOperands));
  for (const Foreign foreign : kEveryForeign) {
    Sums sums;
    bool untouched = false;
    {
      ForeignFloatEnvironment environment(foreign);
      sums = guarded_sums();
      untouched = environment.untouched();
    }
    EXPECT_EQ(sums, usual) << foreign_name(foreign);
    EXPECT_TRUE(untouched) << foreign_name(foreign) << ": modes or flags changed";
  }
}

TEST(FloatEnvironment, GuardsNest) {
  bool untouched = false;
  Sums sums;
  {
    ForeignFloatEnvironment environment(Foreign::kTraps);
    {
      DefaultFloatEnvironment outer;
      sums = guarded_sums();
      (void)sums_of(kOperands);  // would be trapped if the inner one had given more back than it took
    }
    untouched = environment.untouched();
  }
  EXPECT_EQ(sums, guarded_sums());
  EXPECT_TRUE(untouched);
}

// Adds up on whatever thread it is run.
class Summing final : public Task {
 public:
  explicit Summing(std::size_t units) : sums(units) {}
  std::vector<Sums> sums;

 private:
  void perform(std::int64_t unit, int) override { sums[static_cast<std::size_t>(unit)] = sums_of(kOperands); }
};

// An engine's own threads, each in a foreign environment; they report whether they had it back after each unit.
class ForeignThreads final : public Executor {
 public:
  explicit ForeignThreads(Foreign foreign) : foreign_(foreign) {}
  int concurrency() const override { return 2; }
  void run(std::int64_t units, Task& task) override {
    std::atomic<std::int64_t> next{0};
    const auto work = [&](int worker) {
      ForeignFloatEnvironment environment(foreign_);
      for (std::int64_t unit = next++; unit < units; unit = next++) {
        task.run(unit, worker);
        if (!environment.untouched()) ++touched;
      }
    };
    std::thread other([&] { work(1); });
    work(0);
    other.join();
  }
  std::atomic<int> touched{0};

 private:
  Foreign foreign_;
};

TEST(FloatEnvironment, ATaskRunsInTheDefaultWhoeverMadeTheThread) {
  const Sums usual = guarded_sums();
  for (const Foreign foreign : kEveryForeign) {
    ForeignThreads threads(foreign);
    Summing task(64);
    threads.run(64, task);
    for (const Sums& sums : task.sums) ASSERT_EQ(sums, usual) << foreign_name(foreign);
    EXPECT_EQ(threads.touched, 0) << foreign_name(foreign);
  }
}

// oneTBB hands the modes of the thread that made an arena, or that calls it, to its workers.
TEST(FloatEnvironment, AnExecutorMadeInAnyEnvironmentWorksInTheDefault) {
  tbb::global_control threads(tbb::global_control::max_allowed_parallelism, 4);
  const Sums usual = guarded_sums();
  const auto before = make_executor(2);
  for (const Foreign foreign : kEveryForeign) {
    Summing with_before(64), with_during(64), with_after(64);
    std::unique_ptr<Executor> during;
    {
      ForeignFloatEnvironment environment(foreign);
      during = make_executor(2);
      before->run(64, with_before);
      during->run(64, with_during);
    }
    during->run(64, with_after);
    for (const Summing* task : {&with_before, &with_during, &with_after}) {
      for (const Sums& sums : task->sums) ASSERT_EQ(sums, usual) << foreign_name(foreign);
    }
  }
}

}  // namespace
}  // namespace seriatim
