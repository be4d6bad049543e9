#include "seriatim/layer_view.hpp"

#include <cstring>

#include "cache/group_block.hpp"

namespace seriatim {
namespace {

bool same(const VectorStrides& a, const VectorStrides& b) {
  return a.token_bytes == b.token_bytes && a.head_bytes == b.head_bytes;
}

}  // namespace

void LayerView::set_strides(const GroupBlock& block) {
  // Where each token follows the one before by as many bytes, the whole page is one block: nothing to divide.
  const bool even = block.tokens == 1;
  block_tokens = even ? page_tokens : block.tokens;
  block_bytes = even ? page_tokens * block.bytes : block.bytes;
  key_strides = {even ? block.bytes : block.key_bytes, block.head_bytes};
  value_strides = {even ? block.bytes : block.value_bytes, block.head_bytes};
  value_offset_bytes = key_offset_bytes + block.values;
}

void LayerView::set_cache_strides() { set_strides(GroupBlock::of(*geometry)); }

bool LayerView::has_cache_strides() const {
  LayerView cache = *this;
  cache.set_cache_strides();
  return value_pages == nullptr && block_tokens == cache.block_tokens && block_bytes == cache.block_bytes &&
         value_offset_bytes == cache.value_offset_bytes && same(key_strides, cache.key_strides) &&
         same(value_strides, cache.value_strides);
}

const std::byte* LayerView::key(std::int64_t position, std::int64_t kv_head) const {
  return LayerWalk(*this, kv_head).at(position).key;
}

const std::byte* LayerView::value(std::int64_t position, std::int64_t kv_head) const {
  return LayerWalk(*this, kv_head).at(position).value;
}

const std::byte* LayerView::raw_index_key(std::int64_t position) const {
  if (raw_offset_bytes < 0) return nullptr;
  const std::int64_t slot = first_slot + (position - run.anchor);
  return pages[slot / page_tokens] + raw_offset_bytes +
         row_bytes(geometry->index_dtype(), slot % page_tokens * geometry->index_dim());
}

Coordinates LayerView::coordinates(std::int64_t position) const {
  const auto same = static_cast<std::int32_t>(position);
  Coordinates at{same, same, same};
  if (coordinates_offset_bytes < 0) return at;
  const std::int64_t slot = first_slot + (position - run.anchor);
  std::memcpy(
      &at,
      pages[slot / page_tokens] + coordinates_offset_bytes + slot % page_tokens * static_cast<std::int64_t>(sizeof at),
      sizeof at);
  return at;
}

PooledKeys LayerView::pooled_up_to(std::int64_t position) const {
  PooledKeys visible = pooled;
  if (pooled.groups > 0) visible.groups = geometry->index_keys(position - run.anchor + 1);
  return visible;
}

}  // namespace seriatim
