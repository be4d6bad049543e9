// The heap under a test's control: what was asked of it and what is alive, to the byte, and requests that fail on
// purpose. Only in binaries that compile support/heap.cc, which replaces operator new.
#pragma once

#include <cstdint>

namespace seriatim::testing {

struct HeapUse {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};

// Everything asked of operator new so far, by any thread.
HeapUse heap_use();

// What `work` asks for.
template <typename Work>
HeapUse heap_use_of(Work&& work) {
  const HeapUse before = heap_use();
  work();
  const HeapUse after = heap_use();
  return {after.calls - before.calls, after.bytes - before.bytes};
}

// Bytes asked of operator new and not yet given back.
std::int64_t heap_live_bytes();

// While it lives, requests above `bytes` fail as if the system had refused them.
class HeapLimit {
 public:
  explicit HeapLimit(std::int64_t bytes);
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;
  ~HeapLimit();
};

// From now on request number `first` (0: the next) fails as if the system had refused it; with `all`, every later one
// too.
void arm_heap_fault(std::int64_t first, bool all);
// Whether one has failed.
bool disarm_heap_fault();

}  // namespace seriatim::testing
