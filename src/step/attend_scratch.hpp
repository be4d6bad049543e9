// What attending a batch needs of the workspace. Nothing here depends on the number of queries.
#pragma once

#include <cstdint>

#include "seriatim/geometry.hpp"

namespace seriatim {

// Where there are fewer queries x kv heads than this many per worker, their rows are cut into splits for all workers.
inline constexpr std::int64_t kFewPairsPerWorker = 2;
// Splits per worker that are reduced before they are folded.
inline constexpr std::int64_t kOpenSplitsPerWorker = 6;

// Floats of each worker: a block of queries over one kv head, and from attend_partial_place on two partials.
std::int64_t attend_worker_floats(const Geometry& geometry);
std::int64_t attend_partial_place(const Geometry& geometry);

// Partials, of kernel_partial_floats each, that the workers share: the splits that are open, and one total per query
// and kv head. None for a single worker.
constexpr std::int64_t attend_split_slots(int concurrency) {
  return concurrency == 1 ? 0 : (kOpenSplitsPerWorker + kFewPairsPerWorker) * concurrency;
}

}  // namespace seriatim
