// The heap under a test's control: what is alive, to the byte, and requests that fail on purpose. Only in binaries that
// compile cache_heap.cc, which replaces operator new.
#pragma once

#include <cstdint>

namespace seriatim::cache_testing {

// Bytes asked of operator new and not yet given back.
std::int64_t heap_live_bytes();

// From now on request number `first` (0: the next) fails as if the system had refused it; with `all`, every later one
// too.
void arm_heap_fault(std::int64_t first, bool all);
// Whether one has failed.
bool disarm_heap_fault();

}  // namespace seriatim::cache_testing
