// Pages as files of version 1 have them: all keys of a head together, then all values. Read by copying alone; what a
// cache keeps, and every file that is written, has a block per group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/layout.hpp"

namespace seriatim::cache_file {

struct Version1 {
  struct Layer {
    std::int64_t keys = kAbsent;    // [kv_heads][page_tokens][head_dim]
    std::int64_t values = kAbsent;  // [kv_heads][page_tokens][value_dim]; absent when they alias the keys
    std::int64_t raw = kAbsent;     // as in Layout
  };
  std::vector<Layer> layers;
  std::int64_t coordinates = kAbsent;
  std::int64_t token_page_bytes = 0;
  std::vector<Layout::Block> token_blocks;

  // Of a file whose pages have `now` as their layout in a cache. Errors  Overflow.
  static Result<Version1> make(const Geometry& geometry, const Layout& now);

  // A page of version 1 -> a page of a cache.
  void convert(const Geometry& geometry, const Layout& now, const std::byte* from, std::byte* to) const;
};

}  // namespace seriatim::cache_file
