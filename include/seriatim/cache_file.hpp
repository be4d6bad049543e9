// A cache's file: what is in it, and whether it is whole, without making a cache. docs/cache_file.md has every byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

struct CacheFileInfo {
  struct Sequence {
    SequenceId id = 0;  // in the cache that was saved
    VisibleRun run;
  };

  Geometry geometry;     // what the file says; what it does not say (query heads, budget) has its default or fits
  CacheOptions options;  // layers and page_tokens
  std::vector<Sequence> sequences;
  int version = 0;  // 1 or 2
  std::int64_t token_pages = 0;
  std::int64_t pooled_pages = 0;
  std::int64_t token_page_bytes = 0;
  std::int64_t pooled_page_bytes = 0;
  std::int64_t file_bytes = 0;
  bool mappable = false;  // version 2, and pages lie at multiples of 64 bytes
};

// Reads and checks all but the pages: header, structure, and the checksums of everything that is not a page.
// Errors  Io. Corrupt: argument is the section or "header". Unsupported: version, or something larger than this build
//         admits. OutOfMemory.
Result<CacheFileInfo> read_cache_file(const std::string& path);

// Besides, every page's checksum, that no element is infinite or NaN, and that pooled keys are those of the raw keys.
// Errors  as read_cache_file; Corrupt, NotFinite: row = page or sequence, index = element, group or token.
Status verify_cache_file(const std::string& path);

}  // namespace seriatim
