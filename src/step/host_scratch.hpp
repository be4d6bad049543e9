// Scratch of the host: one private piece per worker, and what they share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "seriatim/step.hpp"
#include "step/plan_scratch.hpp"
#include "step/screening.hpp"

namespace seriatim {

struct WorkerScratch {
  PlanScratch plan;
  std::vector<float> attend;  // attend_worker_floats
};

struct HostScratch {
  HostScratch(Executor& runs, Kernels chosen, Screening screens)
      : executor(runs), kernels(chosen), screening(screens) {}

  // What grow() of one that was never grown takes. Errors  Overflow.
  Result<std::int64_t> bytes_for(const Geometry& geometry, std::int64_t visible_tokens) const;
  std::int64_t bytes() const;
  bool holds(const Geometry& geometry, std::int64_t visible_tokens) const;
  // Afterwards it holds that, and what it held. Throws bad_alloc.
  void grow(const Geometry& geometry, std::int64_t visible_tokens);

  int concurrency() const { return executor.concurrency(); }
  // Whether queries of this geometry may be screened at all. All calls give one answer: scratch is made by it.
  bool screens(const Geometry& geometry) const;

  Executor& executor;
  const Kernels kernels;
  const Screening screening;
  std::vector<WorkerScratch> workers;  // none, or concurrency()
  std::vector<float> attend_splits;    // attend_split_slots * kernel_partial_floats
  mutable std::optional<bool> wins;    // screening_wins(), once it has been asked
};

}  // namespace seriatim
