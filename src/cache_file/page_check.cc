#include "cache_file/page_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/format.hpp"
#include "cache/rows.hpp"
#include "cache_file/format.hpp"

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

// A page's judgement, chunk after chunk.
class Judge {
 public:
  Judge(const PageRules& rules, std::int64_t number) : rules_(rules), number_(number) { XXH3_64bits_reset(&state_); }

  void look(std::int64_t offset, std::span<const std::byte> chunk, DType dtype) {
    XXH3_64bits_update(&state_, chunk.data(), chunk.size());
    const bool floats = dtype != DType::kI32;
    if (floats)
      largest_ = std::max(
          largest_, bound_of(rules_.kernels.largest(chunk.data(), std::ssize(chunk) / dtype_bytes(dtype), dtype)));
    if (fault_ >= 0 || rules_.may_overflow || (floats && std::isfinite(largest_))) return;
    const std::int64_t found = first_fault(chunk, dtype);
    if (found >= 0) fault_ = offset + found;
  }

  Result<float> verdict(std::uint64_t hash) {
    const std::string_view section = rules_.section;
    if (XXH3_64bits_digest(&state_) != hash) {
      return cache_file::corrupt(section, formatted("the checksum of page {} is another", number_), {number_, -1});
    }
    if (fault_ < 0) return largest_;
    return Status::error(
        Code::kNotFinite, section,
        formatted("{}: page {} has an element that is not finite, or a negative coordinate, at byte {}", section,
                  number_, fault_),
        {number_, fault_});
  }

 private:
  const PageRules& rules_;
  const std::int64_t number_;
  XXH3_state_t state_;
  float largest_ = 0.0f;
  std::int64_t fault_ = -1;
};

// `fetch(offset, bytes)` gives the span of the page's bytes there, or a Status.
template <typename Fetch>
Result<float> judge(const PageRules& rules, std::int64_t number, std::uint64_t hash, Fetch fetch) {
  Judge judge(rules, number);
  for (const Layout::Block& block : rules.blocks) {
    for (std::int64_t done = 0; done < block.bytes; done += kChunkBytes) {
      const std::int64_t offset = block.offset + done;
      const Result<std::span<const std::byte>> chunk = fetch(offset, std::min(kChunkBytes, block.bytes - done));
      if (!chunk.ok()) return chunk.status();
      judge.look(offset, *chunk, block.dtype);
    }
  }
  return judge.verdict(hash);
}

}  // namespace

Result<float> read_page(const file::InputFile& file, const PageRules& rules, std::int64_t section_at,
                        std::int64_t number, std::uint64_t hash, std::span<std::byte> page) {
  const std::int64_t page_at = section_at + number * std::ssize(page);
  return judge(rules, number, hash, [&](std::int64_t offset, std::int64_t bytes) -> Result<std::span<const std::byte>> {
    const auto into = page.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
    if (Status s = file.read(page_at + offset, into); !s.ok()) return s;
    return std::span<const std::byte>(into);
  });
}

Result<float> check_page(const PageRules& rules, std::int64_t number, std::uint64_t hash,
                         std::span<const std::byte> page) {
  return judge(rules, number, hash, [&](std::int64_t offset, std::int64_t bytes) -> Result<std::span<const std::byte>> {
    return page.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  });
}

}  // namespace seriatim
