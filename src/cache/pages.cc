#include "cache/pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "base/format.hpp"

namespace seriatim {
namespace {

std::byte nothing;  // where a page without bytes lies: of an index store whose keys arrive finished

// An allocator has address space from the system; the memory behind it comes with the first touch, and may then not be
// there. Asks for it now. False: the system has none.
bool take_memory(std::byte* data, std::int64_t bytes) {
  if (bytes == 0) return true;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(data) & ~(page - 1);
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data) + static_cast<std::uintptr_t>(bytes);
#ifdef MADV_POPULATE_WRITE
  int error = 0;
  do {
    error = ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (error == EINTR || error == EAGAIN);
  if (error != EINVAL && error != ENOSYS) return error == 0;
#endif
  // A system without that call: a write to each of its pages, which cannot fail but by ending the process.
  std::memset(data, 0, static_cast<std::size_t>(bytes));
  return true;
}

}  // namespace

void dispose(Page* page) noexcept { page->pool->recycle(page); }

PagePool::~PagePool() { trim(); }

void PagePool::trim() noexcept {
  const std::lock_guard lock(mutex_);
  while (free_ != nullptr) {
    Page* page = free_;
    free_ = page->next_free;
    --free_pages_;
    --held_pages_;
    if (page_bytes_ > 0) allocator_.release(page->data, page_bytes_);
    delete page;
  }
}

Page* PagePool::make_page() {
  auto* page = new (std::nothrow) Page;
  if (page == nullptr) return nullptr;
  page->data = page_bytes_ == 0 ? &nothing : allocator_.allocate(page_bytes_);
  if (page->data == nullptr) {
    delete page;
    return nullptr;
  }
  page->pool = this;
  ++held_pages_;
  return page;
}

Result<Ref<Page>> PagePool::acquire() {
  const std::lock_guard lock(mutex_);
  Page* page = free_;
  if (page != nullptr) {
    free_ = page->next_free;
    --free_pages_;
  } else if (held_pages_ == limit_pages_) {
    return Status::error(Code::kCapacity, "capacity", formatted("capacity: all {} pages are in use", limit_pages_));
  } else if (page = make_page(); page == nullptr) {
    return Status::error(Code::kOutOfMemory, "page", formatted("page: the system refused {} bytes", page_bytes_));
  }
  page->next_free = nullptr;
  page->mark = 0;
  return Ref<Page>(page);
}

Status PagePool::reserve() {
  const std::lock_guard lock(mutex_);
  while (held_pages_ < limit_pages_) {
    Page* page = make_page();
    if (page != nullptr && !take_memory(page->data, page_bytes_)) {
      allocator_.release(page->data, page_bytes_);
      delete page;
      page = nullptr;
      --held_pages_;
    }
    if (page == nullptr) {
      return Status::error(Code::kOutOfMemory, "page", formatted("page: the system refused {} bytes", page_bytes_));
    }
    page->next_free = free_;
    free_ = page;
    ++free_pages_;
  }
  return {};
}

Ref<Page> PagePool::wrap(Ref<Mapping> mapping, const std::byte* data) {
  auto* page = new Page;
  page->data = const_cast<std::byte*>(data);  // never written: see Page::mapping
  page->mapping = std::move(mapping);
  page->pool = this;
  page->mark = std::numeric_limits<std::int64_t>::max();
  const std::lock_guard lock(mutex_);
  ++wrapped_pages_;
  return Ref<Page>(page);
}

void PagePool::recycle(Page* page) noexcept {
  if (page->mapping) {
    delete page;
    const std::lock_guard lock(mutex_);
    --wrapped_pages_;
    return;
  }
  const std::lock_guard lock(mutex_);
  page->next_free = free_;
  free_ = page;
  ++free_pages_;
}

PagePool::Count PagePool::count() const {
  const std::lock_guard lock(mutex_);
  return {held_pages_ - free_pages_, free_pages_, wrapped_pages_};
}

}  // namespace seriatim
