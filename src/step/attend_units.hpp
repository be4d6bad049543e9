// How the work of one batch of queries is cut into units for the executor. However it is cut, the bits are the same.
#pragma once

#include <cstdint>
#include <span>

#include "attend/attend_kernels.hpp"
#include "step/first_fault.hpp"
#include "step/workspace.hpp"

namespace seriatim {

// A checked batch.
struct AttendBatch {
  const LayerView& layer;
  const AttendQueries& queries;
  const ConstRows rows;
  const Tensor output;
  const Tensor lse;  // or empty

  std::int64_t count() const { return queries.queries.shape[0]; }
  BlockQuery query(std::int64_t q) const;
};

// Attends every query. Gives the first place, query * query_heads + head, that overflowed, or FirstFault::kNone.
std::int64_t attend_batch(const AttendBatch& batch, Workspace::Impl& work);

}  // namespace seriatim
