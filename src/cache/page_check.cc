#include "cache/page_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cache/file_format.hpp"
#include "cache/rows.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace seriatim {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 18;  // read, hashed and looked at while it is in the CPU's cache

// Offset of the first element that append would have refused, or -1.
std::int64_t first_fault(std::span<const std::byte> bytes, DType dtype) {
  const std::int64_t element_bytes = dtype_bytes(dtype);
  if (dtype != DType::kI32) {
    const std::int64_t element = first_not_finite(bytes.data(), std::ssize(bytes) / element_bytes, dtype);
    return element < 0 ? -1 : element * element_bytes;
  }
  for (std::int64_t at = 0; at < std::ssize(bytes); at += element_bytes) {  // a coordinate
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    if (value < 0) return at;
  }
  return -1;
}

// `fetch(offset, bytes)` gives the span of the page's bytes there, or a Status.
template <typename Fetch>
Status judge(std::string_view section, std::int64_t number, std::span<const Layout::Block> blocks, std::uint64_t hash, Fetch fetch) {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  std::int64_t fault = -1;
  for (const Layout::Block& block : blocks) {
    for (std::int64_t done = 0; done < block.bytes; done += kChunkBytes) {
      const std::int64_t offset = block.offset + done;
      const Result<std::span<const std::byte>> chunk = fetch(offset, std::min(kChunkBytes, block.bytes - done));
      if (!chunk.ok()) return chunk.status();
      XXH3_64bits_update(&state, chunk->data(), chunk->size());
      if (fault >= 0) continue;
      const std::int64_t found = first_fault(*chunk, block.dtype);
      if (found >= 0) fault = offset + found;
    }
  }
  if (XXH3_64bits_digest(&state) != hash) {
    return cache_file::corrupt(section, fmt::format("the checksum of page {} is another", number), {number, -1});
  }
  if (fault < 0) return {};
  return Status::error(Code::kNotFinite, section,
                       fmt::format("{}: page {} has an element that is not finite, or a negative coordinate, at byte {}", section, number, fault),
                       {number, fault});
}

}  // namespace

Status read_page(const InputFile& file, std::string_view section, std::int64_t section_at, std::int64_t number,
                 std::span<const Layout::Block> blocks, std::uint64_t hash, std::span<std::byte> page) {
  const std::int64_t page_at = section_at + number * std::ssize(page);
  return judge(section, number, blocks, hash, [&](std::int64_t offset, std::int64_t bytes) -> Result<std::span<const std::byte>> {
    const auto into = page.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
    if (Status s = file.read(page_at + offset, into); !s.ok()) return s;
    return std::span<const std::byte>(into);
  });
}

Status check_page(std::string_view section, std::int64_t number, std::span<const Layout::Block> blocks, std::uint64_t hash,
                  std::span<const std::byte> page) {
  return judge(section, number, blocks, hash, [&](std::int64_t offset, std::int64_t bytes) -> Result<std::span<const std::byte>> {
    return page.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  });
}

}  // namespace seriatim
