// Counts what the heap hands out. Only in binaries that compile support/counting_new.cc, which replaces operator new.
#pragma once

#include <cstdint>

namespace seriatim::testing {

struct HeapUse {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;
};

// Everything asked of operator new so far, by any thread.
HeapUse heap_use();

// While it lives, requests above `bytes` fail as if the system had refused them.
class HeapLimit {
 public:
  explicit HeapLimit(std::int64_t bytes);
  HeapLimit(const HeapLimit&) = delete;
  HeapLimit& operator=(const HeapLimit&) = delete;
  ~HeapLimit();
};

// What `work` asks for.
template <typename Work>
HeapUse heap_use_of(Work&& work) {
  const HeapUse before = heap_use();
  work();
  const HeapUse after = heap_use();
  return {after.calls - before.calls, after.bytes - before.bytes};
}

}  // namespace seriatim::testing
