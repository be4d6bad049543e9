// What all calls of a process share: threads, kernels, workspaces, and the count of work done.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/step.hpp"

namespace seriatim::python {

// The process's executor; calls that began with an earlier one keep it.
std::shared_ptr<Executor> executor();
Result<Kernels> kernels();

// A workspace that a caller made, or one of the pool's. Calls with one workspace take turns.
struct SharedWorkspace {
  std::shared_ptr<Executor> threads;
  seriatim::Engine workspace;
  Geometry geometry;
  std::int64_t max_visible_tokens;
  Kernels kernels;
  std::mutex turn;

  SharedWorkspace(std::shared_ptr<Executor> executor, seriatim::Engine made, const Geometry& for_geometry,
                  std::int64_t tokens, Kernels with)
      : threads(std::move(executor)),
        workspace(std::move(made)),
        geometry(for_geometry),
        max_visible_tokens(tokens),
        kernels(with) {}
};

Result<std::shared_ptr<SharedWorkspace>> make_workspace(const Geometry& geometry, std::int64_t visible_tokens,
                                                        std::shared_ptr<Executor> executor, Kernels kernels);

// Runs `call(workspace)` with the caller's workspace, or with one of the pool that is large enough. Without the
// interpreter's lock; the work done is added to the process's count.
template <typename Call>
Status with_workspace(const std::shared_ptr<SharedWorkspace>& given, const Geometry& geometry,
                      std::int64_t visible_tokens, Call&& call);

Result<std::shared_ptr<SharedWorkspace>> borrow_workspace(const Geometry& geometry, std::int64_t visible_tokens);
void give_back(std::shared_ptr<SharedWorkspace> workspace);
void count_work(const WorkDone& before, const WorkDone& after);

template <typename Call>
Status with_workspace(const std::shared_ptr<SharedWorkspace>& given, const Geometry& geometry,
                      std::int64_t visible_tokens, Call&& call) {
  std::shared_ptr<SharedWorkspace> used = given;
  if (!used) {
    Result<std::shared_ptr<SharedWorkspace>> borrowed = borrow_workspace(geometry, visible_tokens);
    if (!borrowed.ok()) return borrowed.status();
    used = std::move(*borrowed);
  }
  Status status;
  {
    const std::lock_guard turn(used->turn);
    const WorkDone before = used->workspace.done();
    status = call(used->workspace);
    count_work(before, used->workspace.done());
  }
  if (!given) give_back(std::move(used));
  return status;
}

// Runs each(unit, worker) for every unit on the executor; one unit is not worth waking anybody.
template <typename Each>
void for_units(Executor& on, std::int64_t units, const Each& each) {
  struct Units final : Task {
    explicit Units(const Each& e) : each(e) {}
    void perform(std::int64_t unit, int worker) override { each(unit, worker); }
    const Each& each;
  } task(each);
  if (units == 1) return each(0, 0);
  on.run(units, task);
}

// Of several units that fail the first is reported, whatever order they are worked in.
class FirstFault {
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

void bind_engine(nanobind::module_& module);

}  // namespace seriatim::python
