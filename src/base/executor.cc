#include "seriatim/executor.hpp"

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "base/float_environment.hpp"

namespace seriatim {
namespace {

class SerialExecutor final : public Executor {
 public:
  int concurrency() const override { return 1; }
  void run(std::int64_t units, Task& task) override {
    for (std::int64_t unit = 0; unit < units; ++unit) task.run(unit, 0);
  }
};

// As many as oneTBB may run; a larger arena would only make it print a warning.
int allowed_threads() {
  return static_cast<int>(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
}

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads)
      : arena_(threads > 0 ? std::min(threads, allowed_threads()) : tbb::task_arena::automatic) {
    arena_.initialize();
  }
  int concurrency() const override { return arena_.max_concurrency(); }
  void run(std::int64_t units, Task& task) override {
    // oneTBB hands the caller's modes to its workers: a trap among them would spring on a worker's old x87 flags,
    // outside of any task.
    DefaultFloatEnvironment environment;
    std::atomic<std::int64_t> next{0};
    const auto drain = [&](int worker) {
      for (std::int64_t unit = next++; unit < units; unit = next++) task.run(unit, worker);
    };
    try {
      drain_in_arena(units, drain);
    } catch (...) {  // oneTBB found no memory for its tasks; what it started has ended
      drain(0);
    }
  }

 private:
  template <typename Drain>
  void drain_in_arena(std::int64_t units, const Drain& drain) {
    // Isolated: a thread that waits for a run inside a task must not take up another unit of the outer run, whose
    // worker it still is.
    arena_.execute([&] {
      tbb::this_task_arena::isolate([&] {
        const std::int64_t drains = std::min<std::int64_t>(units, concurrency());
        tbb::parallel_for(
            std::int64_t{0}, drains, [&](std::int64_t) { drain(tbb::this_task_arena::current_thread_index()); },
            tbb::simple_partitioner());
      });
    });
  }

  tbb::task_arena arena_;
};

}  // namespace

void Task::run(std::int64_t unit, int worker) {
  DefaultFloatEnvironment environment;
  perform(unit, worker);
}

Executor& serial_executor() {
  static SerialExecutor executor;
  return executor;
}

std::unique_ptr<Executor> make_executor(int threads) {
  DefaultFloatEnvironment environment;  // an arena keeps the modes of the thread that made it
  try {
    auto executor = std::make_unique<TbbExecutor>(threads);
    // An arena of one slot keeps a second for calls from further threads, whose worker would not be below one.
    if (executor->concurrency() == 1) return std::make_unique<SerialExecutor>();
    return executor;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace seriatim
