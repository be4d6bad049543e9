// One layer of one sequence as plan and attend read it: the one place that turns positions into addresses.
//
// A view owns nothing. It comes from a Snapshot or a Transaction of a Cache, or from borrow.hpp where somebody else
// keeps the memory.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"

namespace seriatim {

struct SequenceState;
struct GroupBlock;

// How far apart the vectors of one kind lie in a block. The elements of a vector are neighbours.
struct VectorStrides {
  std::int64_t token_bytes = 0;
  std::int64_t head_bytes = 0;
};

// The slot of position p is first_slot + (p - run.anchor); it lies in page slot / page_tokens, and there in block
// slot % page_tokens / block_tokens. A page of a Cache holds, per layer,
// - keys and values in a block per group: for each kv head its r keys [r][head_dim], then its r values [r][value_dim]
//   (or nothing, when they alias the keys: then value_offset_bytes is that of the keys);
// - raw index keys [page_tokens][index_dim] (or nothing, when keys arrive finished and are in `pooled` already, or the
//   layer has no index: then raw_offset_bytes is -1).
// Both begin at a multiple of 64 bytes. Where vectors lie evenly in the whole page, the page is one block.
struct LayerView {
  const Geometry* geometry = nullptr;
  VisibleRun run;  // every token the sequence holds
  const std::byte* const* pages = nullptr;
  const std::byte* const* value_pages = nullptr;  // null: the values lie in `pages`
  std::int64_t page_tokens = 0;
  std::int64_t block_tokens = 0;  // slots of a block; page_tokens is a multiple
  std::int64_t block_bytes = 0;   // from block to block
  std::int64_t first_slot = 0;    // slot of the anchor
  std::int64_t key_offset_bytes = 0;
  std::int64_t value_offset_bytes = 0;
  VectorStrides key_strides;
  VectorStrides value_strides;  // those of the keys where the values alias them
  std::int64_t raw_offset_bytes = -1;
  std::int64_t coordinates_offset_bytes = -1;  // [page_tokens] x 3 i32; -1 when the geometry names no rope_axes
  bool indexed = true;                         // false: the layer attends rows that another one planned
  const std::atomic<bool>* damaged = nullptr;  // null, or true once a mapped file turned out to be cut short
  PooledKeys pooled;                           // all of `run`: one per complete group, or per
                                               // token where they arrive finished; none in a layer without an index

  // Of a Cache's layer: its number, the published state that it shows or goes on from, and whether it shows what a
  // transaction has staged. Null: borrowed memory. See Snapshot::of().
  const SequenceState* state = nullptr;
  std::int64_t layer = 0;
  bool staged = false;

  // Blocks and strides of pages as a Cache keeps them, from the geometry, page_tokens and key_offset_bytes; the values'
  // offset too.
  void set_cache_strides();
  void set_strides(const GroupBlock& block);  // blocks of any number of tokens
  // Whether the keys and values lie as a Cache keeps them.
  bool has_cache_strides() const;

  // Addresses of one token's vectors. `position` lies in `run`.
  const std::byte* key(std::int64_t position, std::int64_t kv_head) const;
  const std::byte* value(std::int64_t position, std::int64_t kv_head) const;
  const std::byte* raw_index_key(std::int64_t position) const;  // null where there are none

  // The token's M-RoPE coordinates; its position three times where there are none.
  Coordinates coordinates(std::int64_t position) const;

  // The pooled keys that a query at `position` may see: the complete groups of anchor .. position.
  PooledKeys pooled_up_to(std::int64_t position) const;
};

// Where one kv head's keys and values lie, for code that reads many of them in place. Made for positions that mostly
// rise: a page is looked for by division only when a position leaves the last one's.
class LayerWalk {
 public:
  struct Token {
    const std::byte* key = nullptr;
    const std::byte* value = nullptr;
  };

  LayerWalk(const LayerView& layer, std::int64_t kv_head)
      : key_pages_(layer.pages),
        value_pages_(layer.value_pages == nullptr ? layer.pages : layer.value_pages),
        page_tokens_(layer.page_tokens),
        block_tokens_(layer.block_tokens),
        block_bytes_(layer.block_bytes),
        to_slot_(layer.first_slot - layer.run.anchor),
        key_bytes_(layer.key_strides.token_bytes),
        value_bytes_(layer.value_strides.token_bytes),
        key_offset_(layer.key_offset_bytes + kv_head * layer.key_strides.head_bytes),
        value_offset_(layer.value_offset_bytes + kv_head * layer.value_strides.head_bytes),
        to_page_(shift_of(page_tokens_)),
        to_block_(shift_of(block_tokens_)),
        page_first_(-page_tokens_),  // no slot lies in the page before the first
        block_first_(-block_tokens_) {}

  // `position` lies in the layer's run.
  Token at(std::int64_t position) {
    const std::int64_t slot = position + to_slot_;
    if (slot < block_first_ || slot >= block_first_ + block_tokens_) open_block(slot);
    const std::int64_t in_block = slot - block_first_;
    return {keys_ + in_block * key_bytes_, values_ + in_block * value_bytes_};
  }

 private:
  // What divides by a power of two, as pages and groups mostly are; -1 for other numbers.
  static int shift_of(std::int64_t tokens) {
    const auto bits = static_cast<std::uint64_t>(tokens);
    return std::has_single_bit(bits) ? std::countr_zero(bits) : -1;
  }

  void open_block(std::int64_t slot) {
    if (slot < page_first_ || slot >= page_first_ + page_tokens_) {
      page_ = to_page_ < 0 ? slot / page_tokens_ : slot >> to_page_;
      page_first_ = page_ * page_tokens_;
    }
    const std::int64_t in_page = slot - page_first_;
    const std::int64_t block = to_block_ < 0 ? in_page / block_tokens_ : in_page >> to_block_;
    block_first_ = page_first_ + block * block_tokens_;
    keys_ = key_pages_[page_] + key_offset_ + block * block_bytes_;
    values_ = value_pages_[page_] + value_offset_ + block * block_bytes_;
  }

  const std::byte* const* key_pages_;
  const std::byte* const* value_pages_;
  const std::int64_t page_tokens_;
  const std::int64_t block_tokens_;
  const std::int64_t block_bytes_;
  const std::int64_t to_slot_;
  const std::int64_t key_bytes_;
  const std::int64_t value_bytes_;
  const std::int64_t key_offset_;
  const std::int64_t value_offset_;
  const int to_page_;
  const int to_block_;
  std::int64_t page_ = -1;
  std::int64_t page_first_;
  std::int64_t block_first_;
  const std::byte* keys_ = nullptr;  // of the block's first token
  const std::byte* values_ = nullptr;
};

}  // namespace seriatim
