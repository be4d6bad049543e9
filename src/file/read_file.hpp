// A whole regular file in memory of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "seriatim/status.hpp"

namespace seriatim::file {

struct OwnedBytes {
  std::shared_ptr<const std::byte> memory;  // 64-byte aligned
  std::size_t size = 0;

  std::span<const std::byte> bytes() const { return {memory.get(), size}; }
};

// Errors  kIo: cannot be opened or read, not a regular file, or its length changed meanwhile; kUnsupported: longer than
//         limit_bytes; kOutOfMemory.
Result<OwnedBytes> read_file(const std::string& path, std::int64_t limit_bytes);

}  // namespace seriatim::file
