#include "step/host_scratch.hpp"

#include "attend/attend_kernels.hpp"
#include "base/checked.hpp"
#include "step/attend_scratch.hpp"

namespace seriatim {
namespace {

bool holds_entries(const std::vector<float>& memory, std::int64_t entries) {
  return static_cast<std::int64_t>(memory.size()) >= entries;
}

void grow_to(std::vector<float>& memory, std::int64_t entries) {
  if (!holds_entries(memory, entries)) memory = std::vector<float>(static_cast<std::size_t>(entries));
}

}  // namespace

bool HostScratch::screens(const Geometry& geometry) const {
  if (!may_screen(screening, geometry)) return false;
  if (screening == Screening::kOn) return true;
  if (!wins) wins = screening_wins(kernels);
  return *wins;
}

Result<std::int64_t> HostScratch::bytes_for(const Geometry& geometry, std::int64_t visible_tokens) const {
  const std::int64_t one_worker = plan_shape(geometry, visible_tokens, screens(geometry)).bytes() +
                                  attend_worker_floats(geometry) * 4 + static_cast<std::int64_t>(sizeof(WorkerScratch));
  const auto private_bytes = checked_product({one_worker, concurrency()});
  const auto shared = checked_product({attend_split_slots(concurrency()), kernel_partial_floats(geometry), 4});
  const auto all = private_bytes && shared ? checked_add(*private_bytes, *shared) : std::nullopt;
  if (!all) return Status::error(Code::kOverflow, "limits", "limits: the scratch passes 64-bit sizes");
  return *all;
}

std::int64_t HostScratch::bytes() const {
  std::int64_t all = static_cast<std::int64_t>(attend_splits.size()) * 4;
  for (const WorkerScratch& worker : workers)
    all += worker.plan.bytes() + static_cast<std::int64_t>(worker.attend.size() * 4 + sizeof worker);
  return all;
}

bool HostScratch::holds(const Geometry& geometry, std::int64_t visible_tokens) const {
  if (workers.empty()) return false;
  const WorkerScratch& last = workers.back();  // which grows last
  return last.plan.holds(plan_shape(geometry, visible_tokens, screens(geometry))) &&
         holds_entries(last.attend, attend_worker_floats(geometry)) &&
         holds_entries(attend_splits, attend_split_slots(concurrency()) * kernel_partial_floats(geometry));
}

void HostScratch::grow(const Geometry& geometry, std::int64_t visible_tokens) {
  const PlanShape shape = plan_shape(geometry, visible_tokens, screens(geometry));
  workers.resize(static_cast<std::size_t>(concurrency()));
  for (WorkerScratch& worker : workers) {
    worker.plan.grow(shape);
    grow_to(worker.attend, attend_worker_floats(geometry));
  }
  grow_to(attend_splits, attend_split_slots(concurrency()) * kernel_partial_floats(geometry));
}

}  // namespace seriatim
