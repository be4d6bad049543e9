// Any bytes at all as a cache's file: refused, or a cache that can be read, saved and restored again. The checksums are
// made right first, so that what lies behind them is reached; every fourth input is taken as it is.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "cache_file/format.hpp"
#include "file/safetensors_header.hpp"
#include "seriatim/cache_file.hpp"
#include "support/cache.hpp"

namespace {

using namespace seriatim;
using namespace seriatim::cache_file;
using Bytes = std::vector<std::byte>;

void put_hashes(Bytes& file, std::size_t pages_at, const std::vector<std::int64_t>& shape, std::size_t hashes_at,
                std::size_t hashes_bytes) {
  const auto page_bytes = static_cast<std::size_t>(shape[1]);
  for (std::size_t i = 0; i < static_cast<std::size_t>(shape[0]) && 8 * i + 8 <= hashes_bytes; ++i) {
    const std::uint64_t sum = hash(std::span<const std::byte>(file).subspan(pages_at + i * page_bytes, page_bytes));
    std::memcpy(file.data() + hashes_at + 8 * i, &sum, sizeof sum);
  }
}

void make_checksums_right(Bytes& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > file.size() - sizeof length) return;
  const std::string header(reinterpret_cast<const char*>(file.data()), sizeof length + length);
  const auto parsed = seriatim::file::parse_safetensors_header(std::string_view(header).substr(sizeof length), {});
  if (!parsed.ok() ||
      !seriatim::file::check_safetensors_entries(parsed->entries, std::ssize(file) - std::ssize(header)).ok())
    return;
  std::array<const SafetensorsEntry*, kSectionCount> entries{};
  for (const SafetensorsEntry& entry : parsed->entries) {
    for (std::size_t s = 0; s < kSectionCount; ++s) {
      if (entry.name == kSections[s].name && entry.dtype == kSections[s].dtype &&
          entry.shape.size() == kSections[s].rank)
        entries[s] = &entry;
    }
  }
  for (const auto* entry : entries) {
    if (entry == nullptr) return;
  }
  const auto at = [&](std::size_t s) { return header.size() + static_cast<std::size_t>(entries[s]->begin_bytes); };
  const auto bytes = [&](std::size_t s) {
    return static_cast<std::size_t>(entries[s]->end_bytes - entries[s]->begin_bytes);
  };
  put_hashes(file, at(kTokenPages), entries[kTokenPages]->shape, at(kTokenPageHashes), bytes(kTokenPageHashes));
  put_hashes(file, at(kPooledPages), entries[kPooledPages]->shape, at(kPooledPageHashes), bytes(kPooledPageHashes));
  SmallSections small;
  for (std::size_t s = kTokenPageHashes; s < kSectionCount; ++s) {
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(at(s));
    small[s].assign(begin, begin + static_cast<std::ptrdiff_t>(bytes(s)));
  }
  const auto sums = checksums(header, small);
  if (bytes(kChecksums) == sizeof sums) std::memcpy(file.data() + at(kChecksums), sums.data(), sizeof sums);
}

// A file in memory that has a name.
class MemoryFile {
 public:
  explicit MemoryFile(const Bytes& bytes) : fd_(::memfd_create("cache", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != std::ssize(bytes)) std::abort();
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(fd_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

void require(bool holds) {
  if (!holds) std::abort();
}

// Whatever was admitted must be a cache like any other.
void use(Cache& cache, const std::vector<RestoredSequence>& restored) {
  for (const RestoredSequence& sequence : restored) {
    const auto before = cache_testing::image(cache, sequence.id);
    const auto fork = cache.fork(sequence.id);
    require(fork.ok());
    const std::int64_t tokens = cache.snapshot(*fork)->run().tokens;
    require(cache.truncate(*fork, tokens - tokens / 3).ok());
    require(cache_testing::image(cache, sequence.id) == before);
    require(cache.remove(*fork).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto raw = std::as_bytes(std::span(data, size));
  Bytes bytes(raw.begin(), raw.end());
  if (size % 4 != 0) make_checksums_right(bytes);
  const MemoryFile file(bytes);
  const auto info = read_cache_file(file.path());
  (void)verify_cache_file(file.path());
  if (!info.ok()) return 0;
  CacheOptions options = info->options;
  options.capacity_tokens = std::min<std::int64_t>(info->token_pages, 64) * options.page_tokens;
  if (info->token_pages == 0) return 0;
  auto cache = Cache::create(info->geometry, options);
  if (!cache.ok()) return 0;
  for (const RestoreMode mode : {RestoreMode::kCopy, RestoreMode::kMapVerified, RestoreMode::kMap}) {
    const auto restored = (*cache)->restore(file.path(), mode);
    if (restored.ok()) use(**cache, *restored);
  }
  return 0;
}
