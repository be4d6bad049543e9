#include "seriatim/executor.hpp"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <new>

namespace seriatim {
namespace {

class SerialExecutor final : public Executor {
 public:
  int concurrency() const override { return 1; }
  void run(std::int64_t units, Task& task) override {
    for (std::int64_t unit = 0; unit < units; ++unit) task.run(unit, 0);
  }
};

constexpr int kMaxThreads = 1024;  // oneTBB counts an arena's slots in 16 bits and fails beyond

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads) : arena_(threads > 0 ? std::min(threads, kMaxThreads) : tbb::task_arena::automatic) {
    arena_.initialize();
  }
  int concurrency() const override { return arena_.max_concurrency(); }
  void run(std::int64_t units, Task& task) override {
    // Isolated: a thread that waits for a run inside a task must not take up another unit of the outer run, whose
    // worker it still is.
    arena_.execute([&] {
      tbb::this_task_arena::isolate([&] {
        tbb::parallel_for(std::int64_t{0}, units, [&](std::int64_t unit) {
          task.run(unit, tbb::this_task_arena::current_thread_index());
        });
      });
    });
  }

 private:
  tbb::task_arena arena_;
};

}  // namespace

Executor& serial_executor() {
  static SerialExecutor executor;
  return executor;
}

std::unique_ptr<Executor> make_executor(int threads) {
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
