#include "device/emulated/lanes.hpp"

#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <vector>

seriatim::testing::Index3 threadIdx;
seriatim::testing::Index3 blockIdx;

namespace seriatim::testing {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;

struct Lane {
  ucontext_t context{};
  std::unique_ptr<std::byte[]> stack = std::make_unique<std::byte[]>(kStackBytes);
  bool ended = false;
};

ucontext_t scheduler;
Lane* running = nullptr;
const std::function<void()>* work = nullptr;

void enter() {
  (*work)();
  running->ended = true;
}  // goes on at the scheduler

// Every lane from one barrier to the next. Gives  false if some ended and others wait.
bool run_to_barrier(std::vector<Lane>& lanes, bool* all_ended) {
  std::size_t ended = 0;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    threadIdx.x = static_cast<unsigned>(i);
    running = &lanes[i];
    swapcontext(&scheduler, &lanes[i].context);
    ended += lanes[i].ended ? 1U : 0U;
  }
  *all_ended = ended == lanes.size();
  return ended == 0 || *all_ended;
}

}  // namespace

bool run_lanes(Index3 grid, unsigned work_group, const std::function<void()>& lane) {
  static std::vector<Lane> lanes;
  lanes.resize(work_group);
  work = &lane;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        for (Lane& one : lanes) {
          getcontext(&one.context);
          one.context.uc_stack.ss_sp = one.stack.get();
          one.context.uc_stack.ss_size = kStackBytes;
          one.context.uc_link = &scheduler;
          one.ended = false;
          makecontext(&one.context, enter, 0);
        }
        bool ended = false;
        while (!ended) {
          if (!run_to_barrier(lanes, &ended)) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace seriatim::testing

void __syncthreads() {
  using namespace seriatim::testing;
  swapcontext(&running->context, &scheduler);
}
