// The judgement of one page's bytes: its checksum, and that every element is one that append would have admitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/magnitude.hpp"
#include "cache/layout.hpp"
#include "cache_file/opened.hpp"

namespace seriatim {

// What the pages of a section have in common.
struct PageRules {
  std::string_view section;
  std::span<const Layout::Block> blocks;
  bool may_overflow = false;  // pooled keys that the cache computed: finite raw keys may give others
  const RowKernels& kernels;
};

// Reads page `number` of a section that begins at `section_at` into `page`, checking on the way.
// Gives   the largest magnitude of its elements; infinity if one is not finite
// Errors  Io. Corrupt: row = page. NotFinite: row = page, index = byte offset of the first such element in the page.
Result<float> read_page(const file::InputFile& file, const PageRules& rules, std::int64_t section_at,
                        std::int64_t number, std::uint64_t hash, std::span<std::byte> page);

// The same judgement of a page that is in memory.
Result<float> check_page(const PageRules& rules, std::int64_t number, std::uint64_t hash,
                         std::span<const std::byte> page);

}  // namespace seriatim
