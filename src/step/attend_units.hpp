// How the work of one batch of queries is cut into units for the executor. However it is cut, the bits are the same.
#pragma once

#include <cstdint>

#include "step/batch.hpp"
#include "step/first_fault.hpp"
#include "step/host_scratch.hpp"

namespace seriatim {

// Attends every query of an admitted batch for which there is room. Gives the first place, query * query_heads + head,
// that overflowed, the queries of all asks numbered through, or FirstFault::kNone.
std::int64_t attend_batch(const AttendBatch& batch, HostScratch& work);

}  // namespace seriatim
