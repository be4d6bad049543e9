#include "step/attend_scratch.hpp"

#include <algorithm>

#include "attend/attend_kernels.hpp"

namespace seriatim {

std::int64_t attend_worker_floats(const Geometry& geometry) {
  return std::max(attend_block_floats(geometry, 1), attend_block_floats(geometry, block_queries(geometry)));
}

}  // namespace seriatim
