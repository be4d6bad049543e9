// The lanes of a CUDA work-group on one thread: a barrier passes on to the next lane.
#pragma once

#include <cstdint>
#include <functional>

namespace seriatim::testing {

struct Index3 {
  unsigned x = 0;
  unsigned y = 0;
  unsigned z = 0;
};

// Runs `lane()` once for each lane of every work-group of the grid, one work-group after another.
// Gives   false if lanes of one work-group did not meet at a barrier, which on hardware is undefined
bool run_lanes(Index3 grid, unsigned work_group, const std::function<void()>& lane);

}  // namespace seriatim::testing

// What CUDA declares for a lane.
extern seriatim::testing::Index3 threadIdx;
extern seriatim::testing::Index3 blockIdx;
void __syncthreads();
