// A cache's file, opened: its structure checked, its pages not yet read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.hpp"
#include "cache_file/format.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

// A regular file, open for reading.
class InputFile {
 public:
  // Errors  Io.
  static Result<InputFile> open(const std::string& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // Fills `into` from `offset`. Errors  Io: the system refuses, or the file has become shorter.
  Status read(std::int64_t offset, std::span<std::byte> into) const;

  std::int64_t size() const { return size_; }
  int descriptor() const { return fd_; }

 private:
  InputFile(int fd, std::int64_t size) : fd_(fd), size_(size) {}
  int fd_ = -1;
  std::int64_t size_ = 0;
};

struct CacheFile {
  struct Sequence {
    SequenceId id = 0;
    VisibleRun run;
    std::int64_t first_slot = 0;
    std::int64_t first_group_slot = 0;
    std::span<const std::int64_t> token_pages;   // numbers, into token_table
    std::span<const std::int64_t> pooled_pages;  // into pooled_table
  };

  InputFile file;
  Geometry geometry;
  CacheOptions options;  // layers and page_tokens
  Layout layout;
  std::vector<std::uint64_t> token_page_hashes;
  std::vector<std::uint64_t> pooled_page_hashes;
  std::vector<std::int64_t> token_table;
  std::vector<std::int64_t> pooled_table;
  std::vector<Sequence> sequences;
  std::int64_t token_pages_at = 0;  // offset in the file
  std::int64_t pooled_pages_at = 0;

  bool mappable() const { return token_pages_at % kBlockAlignment == 0 && pooled_pages_at % kBlockAlignment == 0; }

  // Errors  as read_cache_file. Throws bad_alloc.
  static Result<CacheFile> open(const std::string& path);
};

}  // namespace seriatim
