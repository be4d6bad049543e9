// Rows of the cache that are needed soon, fetched a few at a time between pieces of other work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace seriatim {

class Prefetch {
 public:
  Prefetch() = default;
  Prefetch(const std::byte* const* rows, std::size_t count, std::int64_t row_bytes) : rows_(rows), left_(count), row_bytes_(row_bytes) {}

  void step(std::size_t rows) {
    for (rows = std::min(rows, left_); rows > 0; --rows, ++rows_, --left_) {
      // A row need not begin or end with a cache line; no line but its own is touched.
      const auto begin = reinterpret_cast<std::uintptr_t>(*rows_) % kLineBytes;
      const auto lines = (begin + static_cast<std::uintptr_t>(row_bytes_) + kLineBytes - 1) / kLineBytes;
      const std::byte* line = *rows_ - begin;
      for (std::uintptr_t i = 0; i < lines; ++i, line += kLineBytes) __builtin_prefetch(line, 0, 2);  // into L2
    }
  }

 private:
  static constexpr std::uintptr_t kLineBytes = 64;

  const std::byte* const* rows_ = nullptr;
  std::size_t left_ = 0;
  std::int64_t row_bytes_ = 0;
};

}  // namespace seriatim
