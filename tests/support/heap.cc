#include "support/heap.hpp"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::atomic<std::int64_t> calls{0};
std::atomic<std::int64_t> asked{0};
std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> limit{kNever};
std::atomic<std::int64_t> until_fault{kNever};
std::atomic<bool> fault_stays{false};
std::atomic<bool> fault_fired{false};

bool refuses(std::size_t bytes) {
  calls += 1;
  asked += static_cast<std::int64_t>(bytes);
  if (static_cast<std::int64_t>(bytes) > limit.load()) return true;
  if (until_fault.load() == kNever) return false;
  const std::int64_t left = until_fault.fetch_sub(1);
  if (left > 0 || (left < 0 && !fault_stays.load())) return false;
  fault_fired = true;
  return true;
}

// In front of every block, as far before it as its alignment asks.
struct Header {
  void* begin;
  std::size_t bytes;
};
static_assert(sizeof(Header) == alignof(std::max_align_t));

void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) noexcept {
  if (refuses(bytes)) return nullptr;
  const bool plain = alignment <= alignof(std::max_align_t);
  const std::size_t front = plain ? sizeof(Header) : alignment;
  void* begin = plain ? std::malloc(front + bytes)  // to the byte, so that ASan sees what is behind it
                      : std::aligned_alloc(alignment, (front + bytes + alignment - 1) / alignment * alignment);
  if (begin == nullptr) return nullptr;
  std::byte* block = static_cast<std::byte*>(begin) + front;
  new (block - sizeof(Header)) Header{begin, bytes};
  live += static_cast<std::int64_t>(bytes);
  return block;
}

template <typename... Alignment>
void* take_or_throw(std::size_t bytes, Alignment... alignment) {
  if (void* block = take(bytes, alignment...)) return block;
  throw std::bad_alloc();
}

void give_back(void* block) noexcept {
  if (block == nullptr) return;
  const Header* header = reinterpret_cast<const Header*>(static_cast<std::byte*>(block) - sizeof(Header));
  live -= static_cast<std::int64_t>(header->bytes);
  std::free(header->begin);
}

std::size_t of(std::align_val_t alignment) { return static_cast<std::size_t>(alignment); }

}  // namespace

void* operator new(std::size_t n) { return take_or_throw(n); }
void* operator new[](std::size_t n) { return take_or_throw(n); }
void* operator new(std::size_t n, std::align_val_t a) { return take_or_throw(n, of(a)); }
void* operator new[](std::size_t n, std::align_val_t a) { return take_or_throw(n, of(a)); }
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return take(n); }
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, of(a)); }
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return take(n, of(a)); }
void operator delete(void* block) noexcept { give_back(block); }
void operator delete[](void* block) noexcept { give_back(block); }
void operator delete(void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t, const std::nothrow_t&) noexcept { give_back(block); }
void operator delete(void* block, std::size_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t) noexcept { give_back(block); }
void operator delete(void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::align_val_t) noexcept { give_back(block); }
void operator delete(void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept { give_back(block); }

namespace seriatim::testing {

HeapUse heap_use() { return {calls.load(), asked.load()}; }

std::int64_t heap_live_bytes() { return live.load(); }

HeapLimit::HeapLimit(std::int64_t most) { limit = most; }
HeapLimit::~HeapLimit() { limit = kNever; }

void arm_heap_fault(std::int64_t first, bool all) {
  fault_fired = false;
  fault_stays = all;
  until_fault = first;
}

bool disarm_heap_fault() {
  until_fault = kNever;
  return fault_fired.load();
}

}  // namespace seriatim::testing
