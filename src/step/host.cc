// The engine on the host.
#include <new>
#include <optional>

#include "base/format.hpp"
#include "step/attend_units.hpp"
#include "step/engine.hpp"
#include "step/first_fault.hpp"
#include "step/halves.hpp"
#include "step/host_scratch.hpp"
#include "step/planner.hpp"

namespace seriatim {
namespace {

class HostEngine final : public Engine::Impl {
 public:
  HostEngine(Executor& executor, Kernels kernels, Screening screening) : scratch_(executor, kernels, screening) {}

  Result<std::shared_ptr<PageAllocator>> allocator(const Geometry&, const CacheOptions&) override {
    return std::shared_ptr<PageAllocator>();
  }
  void let_go() override {}

 protected:
  Result<std::int64_t> scratch_bytes_for(const Geometry& geometry, const StepLimits& limits) const override {
    return scratch_.bytes_for(geometry, limits.visible_tokens);
  }
  std::int64_t scratch_bytes() const override { return scratch_.bytes(); }
  bool holds(const Geometry& geometry, const StepLimits& needed) const override {
    return scratch_.holds(geometry, needed.visible_tokens);
  }
  Status take(const Geometry& geometry, const StepLimits& limits) override {
    scratch_.grow(geometry, limits.visible_tokens);
    return {};
  }
  Executor& executor() override { return scratch_.executor; }

  Status run(const PlanBatch& batch) override {
    for (WorkerScratch& worker : scratch_.workers) worker.plan.done = {};
    if (Status s = plan_batch(batch, scratch_); !s.ok()) return s;
    if (batch.candidates != nullptr) return {};  // counted by no one
    for (const WorkerScratch& worker : scratch_.workers) {
      const ScreenDone& screened = worker.plan.done;
      done.groups_screened += screened.groups;
      done.groups_rescored += screened.rescored;
      done.screen_fallbacks += screened.fallbacks;
      done.index_bytes_read += screened.key_bytes;
    }
    return {};
  }
  Status run(const AttendBatch& batch) override {
    const std::int64_t first = attend_batch(batch, scratch_);
    if (first == FirstFault::kNone) return {};
    const std::int64_t heads = batch.geometry().query_heads();
    return overflow_at(batch, first / heads, first % heads);
  }
  Status run(const PartialBatch& batch) override {
    attend_partials_of(batch, scratch_);
    return {};
  }
  Status run(const FoldBatch& batch) override {
    const std::int64_t first = fold_partials_of(batch, scratch_);
    if (first == FirstFault::kNone) return {};
    return overflow_of(first / batch.geometry.query_heads(), first % batch.geometry.query_heads());
  }

 private:
  HostScratch scratch_;
};

}  // namespace

Result<Engine> Engine::host(Executor& executor, Kernels kernels, std::optional<Screening> screening) {
  if (executor.concurrency() < 1) {
    return Status::error(Code::kInvalidArgument, "executor",
                         formatted("executor: a concurrency of {}", executor.concurrency()));
  }
  const Result<Screening> chosen = screening ? Result<Screening>(*screening) : chosen_screening();
  if (!chosen.ok()) return chosen.status();
  try {
    return Engine(std::make_unique<HostEngine>(executor, kernels, *chosen));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "engine", "engine: the system refused memory");
  }
}

}  // namespace seriatim
