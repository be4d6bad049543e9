#include "step/attend_scratch.hpp"

#include <algorithm>

#include "attend/attend_kernels.hpp"

namespace seriatim {

std::int64_t attend_worker_floats(const Geometry& geometry) {
  return attend_partial_place(geometry) + 2 * kernel_partial_floats(geometry);
}

std::int64_t attend_partial_place(const Geometry& geometry) {
  return std::max(attend_block_floats(geometry, 1), attend_block_floats(geometry, block_queries(geometry)));
}

}  // namespace seriatim
