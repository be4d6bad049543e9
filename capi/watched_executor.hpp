// Holds a caller's executor to its promises: a wrong worker or unit would write outside its scratch, a unit left out
// would give a wrong answer without a word.
#pragma once

#include <atomic>
#include <cstdint>

#include "seriatim/executor.hpp"
#include "seriatim/status.hpp"

namespace seriatim::capi {

// Threads  run() as the executor inside; take_fault() between calls of the engine.
class WatchedExecutor final : public Executor {
 public:
  explicit WatchedExecutor(Executor& inner) : inner_(inner), concurrency_(inner.concurrency()) {}
  int concurrency() const override { return concurrency_; }
  // Units or workers that are none are not run.
  void run(std::int64_t units, Task& task) override;

  // What was wrong since the last call of this, or nothing. Errors  InvalidArgument: the executor.
  Status take_fault();

 private:
  Executor& inner_;
  const int concurrency_;
  std::atomic<bool> faulty_{false};
};

}  // namespace seriatim::capi
