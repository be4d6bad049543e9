// A lambda as the executor's task.
#pragma once

#include <cstdint>

#include "seriatim/executor.hpp"

namespace seriatim {

// Runs each(unit, worker) for every unit. One unit is not worth waking anybody: the caller runs it as worker 0, who is
// free, because a workspace serves one call at a time.
template <typename Each>
void for_units(Executor& executor, std::int64_t units, const Each& each) {
  class EachTask final : public Task {
   public:
    explicit EachTask(const Each& each) : each_(each) {}
    void perform(std::int64_t unit, int worker) override { each_(unit, worker); }

   private:
    const Each& each_;
  };
  if (units == 1) return each(0, 0);
  EachTask task(each);
  executor.run(units, task);
}

}  // namespace seriatim
