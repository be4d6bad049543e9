// Address space from the system: huge and untouched, or unreadable in places.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace seriatim::testing {

// Zeroed memory of which only what is touched exists. Null where the system refuses the reservation.
class MappedMemory {
 public:
  explicit MappedMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }

  std::byte* data() const { return data_; }

  static std::int64_t page_bytes() { return static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE)); }

  // Any access to these bytes ends the process. Whole system pages.
  bool forbid(std::int64_t offset, std::int64_t bytes) {
    return ::mprotect(data_ + offset, static_cast<std::size_t>(bytes), PROT_NONE) == 0;
  }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

}  // namespace seriatim::testing
