// Python's Engine: where calls plan and attend, for any number of threads, and how they are accounted.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/step.hpp"

namespace seriatim::python {

// The library's engines take one call at a time. On the host each call takes one that is free, or makes one; a device
// has one, for which calls take turns.
class EngineHandle {
 public:
  // threads 0: as many as the process may use. kernels absent: what the environment says, else the fastest. Both are
  // looked at when first needed.
  EngineHandle(int threads, std::optional<Kernels> kernels) : asked_threads_(threads), asked_kernels_(kernels) {}
  // Of a device: its name, and its one engine.
  EngineHandle(std::string device, Engine engine);

  // Runs `call(Engine&)`, which gives a Status, and counts the work. Without the interpreter's lock.
  template <typename Call>
  Status with(Call&& call) {
    std::unique_lock<std::mutex> turn(turn_, std::defer_lock);
    if (!device_.empty()) turn.lock();
    Result<Engine> engine = take();
    if (!engine.ok()) return engine.status();
    const Status status = call(*engine);
    give_back(*std::move(engine));
    return status;
  }

  std::shared_ptr<Executor> executor();
  Result<Kernels> kernels() const { return asked_kernels_ ? *asked_kernels_ : Kernels::chosen(); }
  const std::string& device() const { return device_; }
  int asked_threads() const { return asked_threads_; }
  const std::optional<Kernels>& asked_kernels() const { return asked_kernels_; }

  // Scratch for calls within `limits`, which then take no memory; engines that are made later take as much.
  Status reserve(const Geometry& geometry, const StepLimits& limits);
  // Where a cache's pages must come from; null: anywhere.
  Result<std::shared_ptr<PageAllocator>> allocator(const Geometry& geometry, const CacheOptions& options);
  // What sequences have given up since they were last asked about becomes free on a device.
  void let_go();
  std::int64_t bytes() const;  // of engines that are in no call
  WorkDone done() const;
  void clear_done();
  void trim();  // what was not reserved

 private:
  Result<Engine> take();
  void give_back(Engine engine);

  const int asked_threads_ = 0;
  const std::optional<Kernels> asked_kernels_;
  const std::string device_;
  std::mutex turn_;
  mutable std::mutex lock_;
  std::shared_ptr<Executor> executor_;
  std::vector<Engine> free_;  // the most recently used last
  std::vector<std::pair<Geometry, StepLimits>> reserved_;
  WorkDone done_;
};

// The engine of calls that name none.
const std::shared_ptr<EngineHandle>& default_engine();
// `given`, or the default.
std::shared_ptr<EngineHandle> engine_or_default(const std::shared_ptr<EngineHandle>& given);

// Runs each(unit, worker) for every unit on the executor; one unit is not worth waking anybody.
template <typename Each>
void for_each_unit(Executor& on, std::int64_t units, const Each& each) {
  struct Units final : Task {
    explicit Units(const Each& e) : each(e) {}
    void perform(std::int64_t unit, int worker) override { each(unit, worker); }
    const Each& each;
  } task(each);
  if (units == 1) return each(0, 0);
  on.run(units, task);
}

// Of several units that fail the first is reported, whatever order they are worked in.
class FirstStatus {
 public:
  void report(std::int64_t unit, Status status) {
    const std::lock_guard guard(lock_);
    if (unit < unit_) {
      unit_ = unit;
      status_ = std::move(status);
    }
  }
  const Status& status() const { return status_; }

 private:
  std::mutex lock_;
  std::int64_t unit_ = INT64_MAX;
  Status status_;
};

}  // namespace seriatim::python
