// attend() on the host in two halves: partials of some splits, and the fold of all of them.
#pragma once

#include <cstdint>

#include "step/batch.hpp"
#include "step/host_scratch.hpp"

namespace seriatim {

void attend_partials_of(const PartialBatch& batch, HostScratch& work);

// Gives the first place, query * query_heads + head, that overflowed, or FirstFault::kNone.
std::int64_t fold_partials_of(const FoldBatch& batch, HostScratch& work);

}  // namespace seriatim
