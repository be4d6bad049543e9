#include "step/workspace.hpp"

#include <new>

#include "attend/attend_kernels.hpp"
#include "base/checked.hpp"
#include "base/format.hpp"
#include "step/attend_scratch.hpp"

namespace seriatim {
namespace {

Status check_limits(const Geometry& geometry, std::int64_t max_visible_tokens, int concurrency) {
  if (Status s = geometry.check_run({0, max_visible_tokens}); !s.ok()) return s;
  if (concurrency < 1) {
    return Status::error(Code::kInvalidArgument, "executor", formatted("executor: a concurrency of {}", concurrency));
  }
  return {};
}

}  // namespace

Status check_workspace(const Workspace::Impl& work, const Geometry& geometry) {
  const WorkerScratch& scratch = work.workers.front();
  const auto holds = [](const auto& memory, std::int64_t entries) {
    return static_cast<std::int64_t>(memory.size()) >= entries;
  };
  if (scratch.plan.holds(plan_shape(geometry, work.max_visible_tokens)) &&
      holds(scratch.attend, attend_worker_floats(geometry)) &&
      holds(work.attend_splits,
            attend_split_slots(static_cast<int>(work.workers.size())) * attend_partial_floats(geometry))) {
    return {};
  }
  return Status::error(Code::kInvalidArgument, "workspace",
                       "workspace: made for another geometry, with less scratch than this one needs");
}

Result<std::int64_t> Workspace::bytes(const Geometry& geometry, std::int64_t max_visible_tokens, int concurrency) {
  if (Status s = check_limits(geometry, max_visible_tokens, concurrency); !s.ok()) return s;
  const std::int64_t attend_bytes = attend_worker_floats(geometry) * 4;
  const auto scratch = checked_product({plan_shape(geometry, max_visible_tokens).bytes() + attend_bytes, concurrency});
  const auto workers = checked_product({concurrency, sizeof(WorkerScratch)});
  const auto splits = checked_product({attend_split_slots(concurrency), attend_partial_floats(geometry), 4});
  const auto private_bytes = scratch && workers ? checked_add(*scratch, *workers) : std::nullopt;
  const auto held = private_bytes && splits ? checked_add(*private_bytes, *splits) : std::nullopt;
  const auto total = held ? checked_add(*held, sizeof(Impl)) : std::nullopt;
  if (!total) return Status::error(Code::kOverflow, "workspace", "workspace: the scratch passes 64-bit sizes");
  return *total;
}

Result<Workspace> Workspace::create(const Geometry& geometry, std::int64_t max_visible_tokens, Executor& executor,
                                    Kernels kernels) {
  const auto total = bytes(geometry, max_visible_tokens, executor.concurrency());
  if (!total.ok()) return total.status();
  try {
    auto impl = std::make_unique<Impl>();
    impl->executor = &executor;
    impl->kernels = kernels;
    impl->max_visible_tokens = max_visible_tokens;
    impl->total_bytes = *total;
    impl->workers.resize(static_cast<std::size_t>(executor.concurrency()));
    for (WorkerScratch& worker : impl->workers) {
      worker.plan = PlanScratch(plan_shape(geometry, max_visible_tokens));
      worker.attend.resize(static_cast<std::size_t>(attend_worker_floats(geometry)));
    }
    impl->attend_splits.resize(
        static_cast<std::size_t>(attend_split_slots(executor.concurrency()) * attend_partial_floats(geometry)));
    return Workspace(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "workspace", formatted("workspace: the system refused {} bytes", *total));
  }
}

Workspace::Workspace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Workspace::Workspace(Workspace&&) noexcept = default;
Workspace& Workspace::operator=(Workspace&&) noexcept = default;
Workspace::~Workspace() = default;

std::int64_t Workspace::bytes() const { return impl_->total_bytes; }
const WorkDone& Workspace::done() const { return impl_->done; }
void Workspace::clear_done() { impl_->done = {}; }

}  // namespace seriatim
