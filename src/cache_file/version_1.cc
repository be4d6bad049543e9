#include "cache_file/version_1.hpp"

#include <cstring>

#include "base/format.hpp"
#include "cache/group_block.hpp"
#include "cache/page_blocks.hpp"

namespace seriatim::cache_file {

Result<Version1> Version1::make(const Geometry& geometry, const Layout& now) {
  Version1 then;
  PageBlocks blocks(then.token_blocks);
  std::int64_t bytes = 0;
  const DType kv = geometry.kv_dtype();
  for (const LayerLayout& layer : now.layers) {
    Layer at;
    at.keys = blocks.add({geometry.kv_heads(), now.page_tokens, geometry.head_dim()}, kv, &bytes);
    if (!geometry.values_alias_keys())
      at.values = blocks.add({geometry.kv_heads(), now.page_tokens, geometry.value_dim()}, kv, &bytes);
    if (layer.raw != kAbsent)
      at.raw = blocks.add({now.page_tokens, geometry.index_dim()}, geometry.index_dtype(), &bytes);
    then.layers.push_back(at);
  }
  if (now.coordinates != kAbsent) then.coordinates = blocks.add({now.page_tokens, 3}, DType::kI32, &bytes);
  if (!blocks.end()) {
    return Status::error(Code::kOverflow, "page_tokens",
                         formatted("page_tokens: a page of {} tokens in {} layers does not fit 64-bit sizes",
                                   now.page_tokens, now.layers.size()));
  }
  then.token_page_bytes = *blocks.end();
  return then;
}

void Version1::convert(const Geometry& geometry, const Layout& now, const std::byte* from, std::byte* to) const {
  const GroupBlock block = GroupBlock::of(geometry);
  const auto copy = [&](std::int64_t source, std::int64_t target, std::int64_t bytes) {
    std::memcpy(to + target, from + source, static_cast<std::size_t>(bytes));
  };
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const Layer& then = layers[l];
    const LayerLayout& at = now.layers[l];
    for (std::int64_t head = 0; head < geometry.kv_heads(); ++head) {
      for (std::int64_t slot = 0; slot < now.page_tokens; slot += block.tokens) {
        const std::int64_t vector = head * now.page_tokens + slot;
        copy(then.keys + vector * block.key_bytes, at.groups + block.key_at(slot, head),
             block.tokens * block.key_bytes);
        if (then.values == kAbsent) continue;
        copy(then.values + vector * block.value_bytes, at.groups + block.value_at(slot, head),
             block.tokens * block.value_bytes);
      }
    }
    if (at.raw != kAbsent)
      copy(then.raw, at.raw, row_bytes(geometry.index_dtype(), now.page_tokens * geometry.index_dim()));
  }
  if (coordinates != kAbsent)
    copy(coordinates, now.coordinates, now.page_tokens * static_cast<std::int64_t>(sizeof(Coordinates)));
}

}  // namespace seriatim::cache_file
