// A cache's file, opened: its structure checked, its pages not yet read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/layout.hpp"
#include "cache_file/format.hpp"
#include "cache_file/version_1.hpp"
#include "file/input_file.hpp"
#include "seriatim/cache.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

struct CacheFile {
  struct Sequence {
    SequenceId id = 0;
    VisibleRun run;
    std::int64_t first_slot = 0;
    std::int64_t first_group_slot = 0;
    std::span<const std::int64_t> token_pages;   // numbers, into token_table
    std::span<const std::int64_t> pooled_pages;  // into pooled_table
  };

  file::InputFile file;
  Geometry geometry;
  CacheOptions options;                           // layers and page_tokens
  Layout layout;                                  // of its pages in a cache
  std::optional<cache_file::Version1> version_1;  // how the file has them, where that is another way
  std::vector<std::uint64_t> token_page_hashes;
  std::vector<std::uint64_t> pooled_page_hashes;
  std::vector<std::int64_t> token_table;
  std::vector<std::int64_t> pooled_table;
  std::vector<Sequence> sequences;
  std::int64_t token_pages_at = 0;  // offset in the file
  std::int64_t pooled_pages_at = 0;

  // Whether the pages can be used where they lie.
  bool mappable() const {
    return !version_1 && token_pages_at % kBlockAlignment == 0 && pooled_pages_at % kBlockAlignment == 0;
  }
  std::int64_t token_page_bytes() const { return version_1 ? version_1->token_page_bytes : layout.token_page_bytes; }

  // Errors  as read_cache_file. Throws bad_alloc.
  static Result<CacheFile> open(const std::string& path);
};

}  // namespace seriatim
