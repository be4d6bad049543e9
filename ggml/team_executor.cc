#include "team_executor.hpp"

#ifdef _OPENMP
#include <omp.h>

#include <atomic>
#include <exception>
#endif

namespace seriatim::plugin {

#ifdef _OPENMP
namespace {

class TeamExecutor final : public Executor {
 public:
  explicit TeamExecutor(int threads) : threads_(threads) {}
  int concurrency() const override { return threads_; }

  void run(std::int64_t units, Task& task) override {
    if (units <= 1 || threads_ == 1 || omp_in_parallel() != 0) {
      for (std::int64_t unit = 0; unit < units; ++unit) task.run(unit, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure;
#pragma omp parallel num_threads(threads_)
    {
      try {
        const int worker = omp_get_thread_num();
        for (std::int64_t unit = next++; unit < units; unit = next++) task.run(unit, worker);
      } catch (...) {
        if (!failed.exchange(true)) failure = std::current_exception();
        next = units;
      }
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  }

 private:
  const int threads_;
};

}  // namespace

std::unique_ptr<Executor> make_team_executor(int threads) { return std::make_unique<TeamExecutor>(threads); }
#else
std::unique_ptr<Executor> make_team_executor(int) { return nullptr; }
#endif

}  // namespace seriatim::plugin
