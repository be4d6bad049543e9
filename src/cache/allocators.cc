#include <mutex>
#include <new>

#include "cache/layout.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {
namespace {

class HeapAllocator final : public PageAllocator {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    return static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment, std::nothrow));
  }
  void release(std::byte* memory, std::int64_t) noexcept override { ::operator delete(memory, kAlignment); }

 private:
  static constexpr std::align_val_t kAlignment{kBlockAlignment};
};

}  // namespace

PageAllocator& heap_page_allocator() {
  static HeapAllocator allocator;
  return allocator;
}

// What was never handed out, and a list of what came back, kept in the memory itself. A cache asks for two sizes only, so
// a block that came back fits again exactly.
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
