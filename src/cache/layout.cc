#include "cache/layout.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "cache/group_block.hpp"
#include "cache/page_blocks.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;
constexpr std::int64_t kLeastPageTokens = 256;
constexpr std::int64_t kMostPageTokens = std::int64_t{1} << 31;

Result<std::int64_t> admit_page_tokens(const Geometry& geometry, std::int64_t page_tokens) {
  const std::int64_t unit = kPanel * geometry.group_tokens();
  if (page_tokens == 0) return (kLeastPageTokens + unit - 1) / unit * unit;
  if (page_tokens < 0 || page_tokens > kMostPageTokens || page_tokens % unit != 0) {
    return Status::error(Code::kInvalidArgument, "page_tokens",
                         formatted("page_tokens: {} is not a multiple of {} ({} groups of {}) in 1..{}", page_tokens,
                                   unit, kPanel, geometry.group_tokens(), kMostPageTokens));
  }
  return page_tokens;
}

}  // namespace

Result<Layout> Layout::make(const Geometry& geometry, const CacheOptions& options) {
  auto page_tokens = admit_page_tokens(geometry, options.page_tokens);
  if (!page_tokens.ok()) return page_tokens.status();
  Layout layout;
  layout.page_tokens = *page_tokens;
  layout.page_groups = layout.page_tokens / geometry.key_tokens();
  const DType kv = geometry.kv_dtype();
  const DType index = geometry.index_dtype();
  const std::int64_t heads = geometry.kv_heads();
  const std::int64_t vector_dims =
      geometry.head_dim() + (geometry.values_alias_keys() ? 0 : geometry.value_dim());  // of a token's key and value
  PageBlocks tokens(layout.token_blocks);
  PageBlocks pooled(layout.pooled_blocks);
  std::int64_t pooled_bytes = 0;
  for (const LayerParameters& layer : options.layers) {
    LayerLayout at;
    if (!options.index_only) {
      at.groups = tokens.add({heads, layout.page_tokens, vector_dims}, kv, &layout.keys_values_bytes);
    }
    if (layer.indexed && !geometry.finished_keys()) {
      at.raw = tokens.add({layout.page_tokens, geometry.index_dim()}, index, &layout.raw_bytes);
    }
    if (layer.indexed) at.pooled = pooled.add({layout.page_groups, geometry.index_dim()}, index, &pooled_bytes);
    layout.layers.push_back(at);
  }
  if (!geometry.rope_axes().empty()) {
    layout.coordinates = tokens.add({layout.page_tokens, 3}, DType::kI32, &layout.coordinates_bytes);
  }
  if (!tokens.end() || !pooled.end()) {
    return Status::error(Code::kOverflow, "page_tokens",
                         formatted("page_tokens: a page of {} tokens in {} layers does not fit 64-bit sizes",
                                   layout.page_tokens, options.layers.size()));
  }
  layout.token_page_bytes = *tokens.end();
  layout.pooled_page_bytes = *pooled.end();
  layout.padded = tokens.padded();
  return layout;
}

namespace {

void copy_range(const std::byte* from, std::byte* to, std::int64_t offset, std::int64_t bytes) {
  std::memcpy(to + offset, from + offset, static_cast<std::size_t>(bytes));
}

// Whole blocks at once, vector by vector where only a part of a block is asked for.
void copy_groups(const Geometry& geometry, const std::byte* from, std::byte* to, std::int64_t first, std::int64_t begin,
                 std::int64_t end) {
  const GroupBlock block = GroupBlock::of(geometry);
  for (std::int64_t slot = begin; slot < end;) {
    const std::int64_t in_block = slot % block.tokens;
    if (in_block == 0 && end - slot >= block.tokens) {
      const std::int64_t blocks = (end - slot) / block.tokens;
      copy_range(from, to, first + slot / block.tokens * block.bytes, blocks * block.bytes);
      slot += blocks * block.tokens;
      continue;
    }
    const std::int64_t count = std::min(block.tokens - in_block, end - slot);
    for (std::int64_t head = 0; head < geometry.kv_heads(); ++head) {
      copy_range(from, to, first + block.key_at(slot, head), count * block.key_bytes);
      if (block.values > 0) copy_range(from, to, first + block.value_at(slot, head), count * block.value_bytes);
    }
    slot += count;
  }
}

}  // namespace

void copy_token_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                      std::int64_t begin, std::int64_t end) {
  const auto copy_slots = [&](std::int64_t first, std::int64_t slot_bytes) {
    if (first != kAbsent) copy_range(from, to, first + begin * slot_bytes, (end - begin) * slot_bytes);
  };
  for (const LayerLayout& layer : layout.layers) {
    if (layer.groups != kAbsent) copy_groups(geometry, from, to, layer.groups, begin, end);
    copy_slots(layer.raw, row_bytes(geometry.index_dtype(), geometry.index_dim()));
  }
  copy_slots(layout.coordinates, sizeof(Coordinates));
}

void copy_pooled_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t element = dtype_bytes(geometry.index_dtype());
  const std::int64_t panel = kPanel * dim * element;
  for (const LayerLayout& layer : layout.layers) {
    if (layer.pooled == kAbsent) continue;
    for (std::int64_t slot = begin; slot < end;) {
      const std::int64_t lane = slot % kPanel;
      const std::int64_t lanes = std::min(kPanel - lane, end - slot);
      const std::int64_t offset = layer.pooled + slot / kPanel * panel;
      if (lanes == kPanel) {
        copy_range(from, to, offset, panel);
      } else {  // the other lanes may be written at this moment
        for (std::int64_t i = 0; i < dim; ++i)
          copy_range(from, to, offset + (i * kPanel + lane) * element, lanes * element);
      }
      slot += lanes;
    }
  }
}

}  // namespace seriatim
