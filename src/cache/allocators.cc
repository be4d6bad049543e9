#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

#include "cache/layout.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {
namespace {

// Large pages come from slabs for which the system is asked for huge pages: a row reads a few hundred places all over
// the cache, and by pages of 4 KiB each of them waits for a walk of the page table before it waits for memory.
//
// A slab is aligned to its size, so that a block's address tells its slab, and holds blocks of one size. It takes
// address space at once and memory as it is touched. A slab that has blocks left stands in the list.
class HeapAllocator final : public PageAllocator {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    if (!shares_slab(bytes)) {
      return static_cast<std::byte*>(
          ::operator new(static_cast<std::size_t>(bytes), std::align_val_t{kBlockAlignment}, std::nothrow));
    }
    const std::lock_guard lock(mutex_);
    Slab** at = &open_;
    while (*at != nullptr && (*at)->block_bytes != bytes) at = &(*at)->next;
    if (*at == nullptr && !open_slab(bytes, *at)) return nullptr;
    Slab& slab = **at;
    std::byte* memory = slab.take();
    if (!slab.has_room()) *at = slab.next;
    return memory;
  }

  void release(std::byte* memory, std::int64_t bytes) noexcept override {
    if (!shares_slab(bytes)) return ::operator delete(memory, std::align_val_t{kBlockAlignment});
    const std::lock_guard lock(mutex_);
    Slab* slab = reinterpret_cast<Slab*>(reinterpret_cast<std::uintptr_t>(memory) / kSlabBytes * kSlabBytes);
    if (!slab->has_room()) {
      slab->next = open_;
      open_ = slab;
    }
    slab->give(memory);
    if (slab->used > 0) return;
    Slab** at = &open_;
    while (*at != slab) at = &(*at)->next;
    *at = slab->next;
    ::operator delete(slab, std::align_val_t{kSlabBytes});
  }

 private:
  static constexpr std::int64_t kSlabBytes = std::int64_t{32} << 20;
  static constexpr std::int64_t kLeastShared = std::int64_t{64}
                                               << 10;          // what is smaller stays under the heap's own checks
  static constexpr std::int64_t kMostShared = kSlabBytes / 8;  // what is larger would leave much of a slab unused

  struct Block {
    Block* next;
  };
  struct alignas(kBlockAlignment) Slab {
    Slab* next;
    std::int64_t block_bytes;
    std::int64_t left;  // never handed out
    std::int64_t used;
    std::byte* fresh;  // the next of those left
    Block* released;

    bool has_room() const { return left > 0 || released != nullptr; }
    std::byte* take() {
      ++used;
      if (released != nullptr) return reinterpret_cast<std::byte*>(std::exchange(released, released->next));
      --left;
      return std::exchange(fresh, fresh + block_bytes);
    }
    void give(std::byte* memory) {
      --used;
      released = new (memory) Block{released};
    }
  };

  static bool shares_slab(std::int64_t bytes) { return bytes >= kLeastShared && bytes <= kMostShared; }

  static bool open_slab(std::int64_t bytes, Slab*& slab) {
    void* memory = ::operator new(kSlabBytes, std::align_val_t{kSlabBytes}, std::nothrow);
    if (memory == nullptr) return false;
#ifdef MADV_HUGEPAGE
    madvise(memory, kSlabBytes, MADV_HUGEPAGE);  // a wish: where it is not granted, small pages do
#endif
    std::byte* blocks = static_cast<std::byte*>(memory) + sizeof(Slab);
    slab = new (memory)
        Slab{nullptr, bytes, (kSlabBytes - static_cast<std::int64_t>(sizeof(Slab))) / bytes, 0, blocks, nullptr};
    return true;
  }

  std::mutex mutex_;
  Slab* open_ = nullptr;
};

}  // namespace

PageAllocator& heap_page_allocator() {
  static HeapAllocator allocator;
  return allocator;
}

// What was never handed out, and a list of what came back, kept in the memory itself. A cache asks for two sizes only,
// so a block that came back fits again exactly.
struct RegionAllocator::Impl {
  struct Block {
    Block* next;
    std::int64_t bytes;
  };
  std::mutex mutex;
  std::byte* next = nullptr;
  std::int64_t left_bytes = 0;
  Block* released = nullptr;
};

RegionAllocator::RegionAllocator(std::span<std::byte> region) : impl_(std::make_unique<Impl>()) {
  void* next = region.data();
  std::size_t left = region.size();
  if (std::align(kBlockAlignment, kBlockAlignment, next, left) == nullptr) return;
  impl_->next = static_cast<std::byte*>(next);
  impl_->left_bytes = static_cast<std::int64_t>(left);
}

RegionAllocator::~RegionAllocator() = default;

std::byte* RegionAllocator::allocate(std::int64_t bytes) {
  const std::lock_guard lock(impl_->mutex);
  for (Impl::Block** at = &impl_->released; *at != nullptr; at = &(*at)->next) {
    if ((*at)->bytes != bytes) continue;
    auto* memory = reinterpret_cast<std::byte*>(*at);
    *at = (*at)->next;
    return memory;
  }
  if (bytes > impl_->left_bytes) return nullptr;
  std::byte* memory = impl_->next;
  impl_->next += bytes;
  impl_->left_bytes -= bytes;
  return memory;
}

void RegionAllocator::release(std::byte* memory, std::int64_t bytes) noexcept {
  const std::lock_guard lock(impl_->mutex);
  impl_->released = new (memory) Impl::Block{impl_->released, bytes};
}

}  // namespace seriatim
