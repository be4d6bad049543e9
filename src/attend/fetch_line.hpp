// Cache lines fetched before they are needed, into the second level: the first is full of what is being multiplied.
#pragma once

#include <cstddef>
#include <cstdint>

namespace seriatim {

inline constexpr std::int64_t kLineBytes = 64;

// Never faults.
inline void fetch_line(const std::byte* address) { __builtin_prefetch(address, 0, 2); }

inline void fetch_row(const std::byte* row, std::int64_t row_bytes) {
  for (std::int64_t i = 0; i < row_bytes; i += kLineBytes) fetch_line(row + i);
}

}  // namespace seriatim
