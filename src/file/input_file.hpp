// A regular file, open for reading: the one place where bytes come in from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "seriatim/status.hpp"

namespace seriatim::file {

// Copies share one descriptor, closed with the last of them. Threads  any number may read at once.
class InputFile {
 public:
  // Errors  kIo: cannot be opened, not a regular file; kUnsupported: longer than limit_bytes. Throws bad_alloc.
  static Result<InputFile> open(const std::string& path,
                                std::int64_t limit_bytes = std::numeric_limits<std::int64_t>::max());

  // Fills `to` from `offset_bytes` on. Errors  kIo: the system refuses, or the file has become shorter.
  Status read(std::int64_t offset_bytes, std::span<std::byte> to) const;

  // The length when it was opened.
  std::int64_t size() const { return size_; }
  int descriptor() const { return *fd_; }

 private:
  std::string path_;
  std::shared_ptr<const int> fd_;
  std::int64_t size_ = 0;
};

struct OwnedBytes {
  std::shared_ptr<const std::byte> memory;  // 64-byte aligned
  std::size_t size = 0;

  std::span<const std::byte> bytes() const { return {memory.get(), size}; }
};

// A whole file in memory of its own. Errors  as InputFile::open; kIo: its length changed meanwhile; kOutOfMemory.
Result<OwnedBytes> read_file(const std::string& path, std::int64_t limit_bytes);

}  // namespace seriatim::file
