// The judgement of one page's bytes: its checksum, and that every element is one that append would have admitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cache/layout.hpp"
#include "cache/read_file.hpp"

namespace seriatim {

// Reads page `number` of a section that begins at `section_at` into `page`, checking on the way.
// Errors  Io. Corrupt: row = page. NotFinite: row = page, index = byte offset of the first such element in the page.
Status read_page(const InputFile& file, std::string_view section, std::int64_t section_at, std::int64_t number,
                 std::span<const Layout::Block> blocks, std::uint64_t hash, std::span<std::byte> page);

// The same judgement of a page that is in memory.
Status check_page(std::string_view section, std::int64_t number, std::span<const Layout::Block> blocks, std::uint64_t hash,
                  std::span<const std::byte> page);

}  // namespace seriatim
