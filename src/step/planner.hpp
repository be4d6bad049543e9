// plan() on the host.
#pragma once

#include "step/batch.hpp"
#include "step/host_scratch.hpp"

namespace seriatim {

// Scores, selects and expands every query of an admitted batch for which there is room.
// Errors  NotANumber: the first query and group; no row is written then.
Status plan_batch(const PlanBatch& batch, HostScratch& scratch);

}  // namespace seriatim
