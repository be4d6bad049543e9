// Gather: the row's positions -> contiguous tiles of keys and values. Only here do positions become slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "seriatim/cache.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim {

// Entries of a row that are gathered and reduced together: a split (contract section 5). Cut by place in the row.
inline constexpr std::int64_t kSplitEntries = 128;

// One kv head's keys and values for the entries of one split, widened to f32.
struct Tile {
  float* keys = nullptr;    // [entries, head_dim]
  float* values = nullptr;  // [entries, value_dim]
};

// Takes   positions: at most kSplitEntries, each inside layer.run (the caller has checked)
//         kernels: the definition, unless another implementation is asked for
// Gives   tile, in the order of `positions`. Nothing but those positions' keys and values is read.
void gather_tile(const LayerView& layer, std::int64_t kv_head, std::span<const std::int32_t> positions, Tile tile,
                 Kernels kernels = Kernels::reference());

// Where one kv head's keys and values lie, for code that reads them in place. Made for positions that mostly rise: a
// page is looked for by division only when a position leaves the last one's.
class SlotWalk {
 public:
  struct Slot {
    const std::byte* key = nullptr;
    const std::byte* value = nullptr;
  };

  SlotWalk(const LayerView& layer, std::int64_t kv_head)
      : pages_(layer.pages),
        page_tokens_(layer.page_tokens),
        to_slot_(layer.first_slot - layer.run.anchor),
        key_bytes_(layer.geometry->head_dim() * dtype_bytes(layer.geometry->kv_dtype())),
        value_bytes_(layer.geometry->values_alias_keys()
                         ? key_bytes_
                         : layer.geometry->value_dim() * dtype_bytes(layer.geometry->kv_dtype())),
        key_offset_(layer.key_offset_bytes + kv_head * page_tokens_ * key_bytes_),
        value_offset_(layer.geometry->values_alias_keys()
                          ? key_offset_
                          : layer.value_offset_bytes + kv_head * page_tokens_ * value_bytes_),
        page_first_(-page_tokens_) {}  // no slot lies in the page before the first

  // `position` lies in the layer's run.
  Slot at(std::int64_t position) {
    const std::int64_t slot = position + to_slot_;
    if (slot < page_first_ || slot >= page_first_ + page_tokens_) {
      const std::int64_t page = slot / page_tokens_;
      page_first_ = page * page_tokens_;
      page_ = pages_[page];
    }
    const std::int64_t in_page = slot - page_first_;
    return {page_ + key_offset_ + in_page * key_bytes_, page_ + value_offset_ + in_page * value_bytes_};
  }

 private:
  const std::byte* const* pages_;
  const std::int64_t page_tokens_;
  const std::int64_t to_slot_;
  const std::int64_t key_bytes_;
  const std::int64_t value_bytes_;
  const std::int64_t key_offset_;
  const std::int64_t value_offset_;
  std::int64_t page_first_;
  const std::byte* page_ = nullptr;
};

}  // namespace seriatim
