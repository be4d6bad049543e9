// Pages and where they come from.
//
// Which slots may be written is decided by a page's mark: every holder of the page reads slots below it only, so
// appending at the mark is safe in place even while readers hold the page (invariant 4 of cache.hpp). The mark is read
// and moved by the writer alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "cache/mapping.hpp"
#include "cache/ref.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

class PagePool;

struct Page : Counted {
  std::byte* data = nullptr;
  Ref<Mapping> mapping;  // when it is part of a file: then it is never written
  PagePool* pool = nullptr;
  Page* next_free = nullptr;
  std::int64_t mark = 0;  // slots in use by any holder, published or staged
  bool claimed = false;   // a staged sequence is writing past the public count, in place
};

void dispose(Page* page) noexcept;

// Pages of one kind. A page that nobody holds goes to a free list and is handed out again: both in O(1). Memory goes
// back to the allocator on trim() and when the pool ends.
// Threads  any: the last holder of a page may be a reader.
class PagePool {
 public:
  PagePool(PageAllocator& allocator, std::int64_t page_bytes, std::int64_t limit_pages)
      : allocator_(allocator), page_bytes_(page_bytes), limit_pages_(limit_pages) {}
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page with mark 0; what lies in it is left over.
  // Errors  Capacity: the limit is reached. OutOfMemory.
  Result<Ref<Page>> acquire();

  // A page of a mapped file, all slots in use. It takes none of the limit and goes with its last holder. Throws
  // bad_alloc.
  Ref<Page> wrap(Ref<Mapping> mapping, const std::byte* data);

  // Makes the pool hold its limit, so that acquire never needs memory again. Errors  OutOfMemory.
  Status reserve();

  void recycle(Page* page) noexcept;

  // Gives the memory of free pages back.
  void trim() noexcept;

  struct Count {
    std::int64_t used = 0;
    std::int64_t free = 0;
    std::int64_t wrapped = 0;
  };
  Count count() const;
  std::int64_t page_bytes() const { return page_bytes_; }
  std::int64_t limit_pages() const { return limit_pages_; }

 private:
  Page* make_page();  // null if the system refuses memory

  PageAllocator& allocator_;
  const std::int64_t page_bytes_;
  const std::int64_t limit_pages_;
  mutable std::mutex mutex_;
  Page* free_ = nullptr;
  std::int64_t free_pages_ = 0;
  std::int64_t held_pages_ = 0;
  std::int64_t wrapped_pages_ = 0;
};

}  // namespace seriatim
