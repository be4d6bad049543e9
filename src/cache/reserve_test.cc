// What `reserve` promises on a system that hands out more memory than it has.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <span>
#include <vector>

#include "seriatim/cache.hpp"
#include "support/cache.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

// Address space that was never touched; over a file, memory is there only as far as the file reaches.
class UntouchedMemory {
 public:
  static constexpr std::size_t kBytes = std::size_t{8} << 20;
  explicit UntouchedMemory(int fd = -1)
      : data_(::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                     fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED, fd, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  UntouchedMemory(const UntouchedMemory&) = delete;
  UntouchedMemory& operator=(const UntouchedMemory&) = delete;
  ~UntouchedMemory() { ::munmap(data_, kBytes); }

  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), kBytes}; }
  std::int64_t resident_bytes() const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> there(kBytes / page);
    EXPECT_EQ(::mincore(data_, kBytes, there.data()), 0);
    std::int64_t pages = 0;
    for (const unsigned char one : there) pages += one & 1;
    return pages * static_cast<std::int64_t>(page);
  }

 private:
  void* data_;
};

TEST(CacheCapacity, ReservedPagesHaveTheirMemory) {
  const Geometry geometry = admit(small_options());
  for (const bool reserve : {false, true}) {
    const UntouchedMemory memory;
    RegionAllocator allocator(memory.bytes());
    CacheOptions options = cache_options(1, 100 * 64, 64);
    options.reserve = reserve;
    options.allocator = &allocator;
    const auto cache = make_cache(geometry, options);
    if (reserve) {
      EXPECT_GT(cache->bytes().pages(), std::int64_t{1} << 19);
      EXPECT_GE(memory.resident_bytes(), cache->bytes().pages());
    } else {
      EXPECT_EQ(memory.resident_bytes(), 0);
    }
  }
}

#ifdef MADV_POPULATE_WRITE
TEST(CacheCapacity, ReserveIsOutOfMemoryWhereThereIsNone) {
  const Geometry geometry = admit(small_options());
  const int fd = ::memfd_create("short", 0);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::ftruncate(fd, 1 << 16), 0);
  const UntouchedMemory memory(fd);
  const bool tells = ::madvise(memory.bytes().data(), 1, MADV_POPULATE_WRITE) == 0;
  if (tells) {
    RegionAllocator allocator(memory.bytes());
    CacheOptions options = cache_options(1, 100 * 64, 64);
    options.reserve = true;
    options.allocator = &allocator;
    EXPECT_EQ(Cache::create(geometry, options).status().code(), Code::kOutOfMemory);
  }
  ::close(fd);
  if (!tells) GTEST_SKIP() << "this kernel cannot be asked";
}
#endif

}  // namespace
}  // namespace seriatim
