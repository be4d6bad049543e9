#include "support/counting_new.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

std::atomic<std::int64_t> calls{0};
std::atomic<std::int64_t> bytes{0};
std::atomic<std::int64_t> limit{std::numeric_limits<std::int64_t>::max()};

void count(std::size_t size) {
  calls += 1;
  bytes += static_cast<std::int64_t>(size);
  if (static_cast<std::int64_t>(size) > limit) throw std::bad_alloc();
}

void* take(std::size_t size) {
  count(size);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

void* take(std::size_t size, std::align_val_t alignment) {
  count(size);
  const auto unit = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}

template <typename... Alignment>
void* take_or_null(std::size_t size, Alignment... alignment) noexcept {
  try {
    return take(size, alignment...);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* operator new(std::size_t size) { return take(size); }
void* operator new[](std::size_t size) { return take(size); }
void* operator new(std::size_t size, std::align_val_t alignment) { return take(size, alignment); }
void* operator new[](std::size_t size, std::align_val_t alignment) { return take(size, alignment); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take_or_null(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take_or_null(size); }
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take_or_null(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return take_or_null(size, alignment);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace seriatim::testing {

HeapLimit::HeapLimit(std::int64_t most) { limit = most; }
HeapLimit::~HeapLimit() { limit = std::numeric_limits<std::int64_t>::max(); }

HeapUse heap_use() { return {calls.load(), bytes.load()}; }

}  // namespace seriatim::testing
