// Executor: what runs the library's parallel work.
//
// Results never depend on it: the units of work and the order in which they are folded are fixed by the contract, so an
// engine may bring its own pool. The default is oneTBB.
#pragma once

#include <cstdint>
#include <memory>

namespace seriatim {

// Work in units. `worker` is below the executor's concurrency(), and no two units run at once with the same worker.
class Task {
 public:
  // What an executor calls, on any thread: it does the unit in the default floating-point environment (round to
  // nearest, subnormals kept, nothing trapped) and leaves the thread's own modes and flags as they were.
  void run(std::int64_t unit, int worker);

 protected:
  ~Task() = default;

 private:
  virtual void perform(std::int64_t unit, int worker) = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // The most units that run at once.
  virtual int concurrency() const = 0;
  // Runs task.run(unit, worker) once for every unit in 0 .. units - 1, in any order, and returns when all are done.
  // Threads  may be called from several threads at once, and from inside a task.
  virtual void run(std::int64_t units, Task& task) = 0;
};

// Runs everything on the calling thread. Lives for ever.
Executor& serial_executor();

// A oneTBB arena of `threads` slots, at most 1024 (0: as many as the process may use, CPU affinity and quotas respected
// by oneTBB).
// Gives   null if the system refuses memory.
std::unique_ptr<Executor> make_executor(int threads = 0);

}  // namespace seriatim
