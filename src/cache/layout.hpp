// Where things lie inside a page. A page holds its slots for all layers, so that one table serves them all.
#pragma once

#include <cstdint>
#include <vector>

#include "seriatim/cache.hpp"

namespace seriatim {

inline constexpr std::int64_t kBlockAlignment = 64;
inline constexpr std::int64_t kAbsent = -1;

// Byte offsets of one layer's blocks; kAbsent where it has none.
struct LayerLayout {
  std::int64_t groups = kAbsent;  // token page: [page_groups] blocks of keys and values; absent in an index store
  std::int64_t raw = kAbsent;     // token page: [page_tokens][index_dim]; absent without an index or with pooling none
  std::int64_t pooled = kAbsent;  // pooled page: page_groups / 16 panels; absent without an index
};

struct Layout {
  std::int64_t page_tokens = 0;
  std::int64_t page_groups = 0;  // page_tokens / r, a multiple of the panel
  std::vector<LayerLayout> layers;
  std::int64_t coordinates = kAbsent;  // token page: [page_tokens] x 3 i32, when the geometry names rope_axes
  std::int64_t token_page_bytes = 0;
  std::int64_t pooled_page_bytes = 0;  // 0: no layer has an index

  // token_page_bytes by owner.
  std::int64_t keys_values_bytes = 0;
  std::int64_t raw_bytes = 0;
  std::int64_t coordinates_bytes = 0;

  // Every block of a page in the order of its bytes, which it fills without a gap. Coordinates are kI32.
  struct Block {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;  // with what pads it to the alignment
    DType dtype = DType::kF32;
  };
  std::vector<Block> token_blocks;
  std::vector<Block> pooled_blocks;
  bool padded = false;  // some block of a token page has padding

  // False in an index store.
  bool keeps_keys() const { return layers.front().groups != kAbsent; }

  // Errors  InvalidArgument: page_tokens. Overflow: a page whose bytes do not fit.
  static Result<Layout> make(const Geometry& geometry, const CacheOptions& options);
};

// Copies slots [begin, end) of one page to another; nothing else is read.
void copy_token_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                      std::int64_t begin, std::int64_t end);
void copy_pooled_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                       std::int64_t begin, std::int64_t end);

}  // namespace seriatim
