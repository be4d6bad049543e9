// The threads that the application last asked for, and the engine whose calls run on them.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "seriatim/executor.hpp"
#include "seriatim/step.hpp"

namespace seriatim::plugin {

class Workers {
 public:
  void set_threads(int threads) { threads_ = threads < 1 ? 1 : threads; }
  int threads() const { return threads_; }

  // Both live as long as this. Throw bad_alloc.
  Executor& executor() { return *team().executor; }
  Engine& engine() { return *team().engine; }

 private:
  // One per number of threads that was asked for: applications have one for prompts and one for single tokens.
  struct Team {
    int threads = 0;
    std::unique_ptr<Executor> own;
    Executor* executor = nullptr;
    std::optional<Engine> engine;
  };

  Team& team();

  int threads_ = 1;
  std::list<Team> teams_;
};

}  // namespace seriatim::plugin
