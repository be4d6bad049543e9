// What a Workspace holds: one private piece of scratch per worker, and what they share.
#pragma once

#include <cstdint>
#include <vector>

#include "seriatim/step.hpp"
#include "step/plan_scratch.hpp"

namespace seriatim {

struct WorkerScratch {
  PlanScratch plan;
  std::vector<float> attend;  // attend_worker_floats
};

struct Workspace::Impl {
  Executor* executor = nullptr;
  Kernels kernels = Kernels::reference();
  std::int64_t max_visible_tokens = 0;
  std::int64_t total_bytes = 0;
  std::vector<WorkerScratch> workers;
  std::vector<float> attend_splits;  // attend_split_slots * attend_partial_floats
  WorkDone done;
};

// Errors  InvalidArgument: the workspace was made for a geometry that needs less scratch than this one.
Status check_workspace(const Workspace::Impl& work, const Geometry& geometry);

}  // namespace seriatim
