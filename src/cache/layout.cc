#include "cache/layout.hpp"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "base/checked.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;
constexpr std::int64_t kLeastPageTokens = 256;
constexpr std::int64_t kMostPageTokens = std::int64_t{1} << 31;

// Lays blocks end to end, each aligned. Once a size does not fit, every later one is absent too.
class Blocks {
 public:
  std::int64_t add(std::initializer_list<std::int64_t> factors, std::int64_t* owner_bytes) {
    const std::int64_t offset = end_.value_or(0);
    const auto bytes = checked_product(factors);
    const auto padded = bytes ? checked_add(*bytes, kBlockAlignment - 1) : std::nullopt;
    const std::int64_t aligned = padded.value_or(0) / kBlockAlignment * kBlockAlignment;
    end_ = end_ && padded ? checked_add(*end_, aligned) : std::nullopt;
    if (end_) *owner_bytes += aligned;
    return offset;
  }
  std::optional<std::int64_t> end() const { return end_; }

 private:
  std::optional<std::int64_t> end_ = 0;
};

Result<std::int64_t> admit_page_tokens(const Geometry& geometry, std::int64_t page_tokens) {
  const std::int64_t unit = kPanel * geometry.group_tokens();
  if (page_tokens == 0) return (kLeastPageTokens + unit - 1) / unit * unit;
  if (page_tokens < 0 || page_tokens > kMostPageTokens || page_tokens % unit != 0) {
    return Status::error(Code::kInvalidArgument, "page_tokens",
                         fmt::format("page_tokens: {} is not a multiple of {} ({} groups of {}) in 1..{}", page_tokens,
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
  layout.page_groups = layout.page_tokens / geometry.group_tokens();
  const std::int64_t kv_bytes = dtype_bytes(geometry.kv_dtype());
  const std::int64_t index_bytes = dtype_bytes(geometry.index_dtype());
  Blocks tokens;
  Blocks pooled;
  std::int64_t pooled_bytes = 0;
  for (const LayerParameters& layer : options.layers) {
    LayerLayout at;
    at.keys = tokens.add({geometry.kv_heads(), layout.page_tokens, geometry.head_dim(), kv_bytes}, &layout.keys_values_bytes);
    if (!geometry.values_alias_keys()) {
      at.values = tokens.add({geometry.kv_heads(), layout.page_tokens, geometry.value_dim(), kv_bytes}, &layout.keys_values_bytes);
    }
    if (layer.indexed && geometry.pooling() != Pooling::kNone) {
      at.raw = tokens.add({layout.page_tokens, geometry.index_dim(), index_bytes}, &layout.raw_bytes);
    }
    if (layer.indexed) at.pooled = pooled.add({layout.page_groups, geometry.index_dim(), index_bytes}, &pooled_bytes);
    layout.layers.push_back(at);
  }
  if (!geometry.rope_axes().empty()) {
    layout.coordinates = tokens.add({layout.page_tokens, sizeof(Coordinates)}, &layout.coordinates_bytes);
  }
  if (!tokens.end() || !pooled.end()) {
    return Status::error(Code::kOverflow, "page_tokens",
                         fmt::format("page_tokens: a page of {} tokens in {} layers does not fit 64-bit sizes",
                                     layout.page_tokens, options.layers.size()));
  }
  layout.token_page_bytes = *tokens.end();
  layout.pooled_page_bytes = *pooled.end();
  return layout;
}

namespace {

void copy_range(const std::byte* from, std::byte* to, std::int64_t offset, std::int64_t bytes) {
  std::memcpy(to + offset, from + offset, static_cast<std::size_t>(bytes));
}

}  // namespace

void copy_token_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                      std::int64_t begin, std::int64_t end) {
  const auto copy_block = [&](std::int64_t block, std::int64_t heads, std::int64_t slot_bytes) {
    if (block == kAbsent) return;
    for (std::int64_t head = 0; head < heads; ++head) {
      copy_range(from, to, block + (head * layout.page_tokens + begin) * slot_bytes, (end - begin) * slot_bytes);
    }
  };
  const std::int64_t kv_bytes = dtype_bytes(geometry.kv_dtype());
  for (const LayerLayout& layer : layout.layers) {
    copy_block(layer.keys, geometry.kv_heads(), geometry.head_dim() * kv_bytes);
    copy_block(layer.values, geometry.kv_heads(), geometry.value_dim() * kv_bytes);
    copy_block(layer.raw, 1, geometry.index_dim() * dtype_bytes(geometry.index_dtype()));
  }
  copy_block(layout.coordinates, 1, sizeof(Coordinates));
}

void copy_pooled_slots(const Geometry& geometry, const Layout& layout, const std::byte* from, std::byte* to,
                       std::int64_t begin, std::int64_t end) {
  const std::int64_t panel = kPanel * geometry.index_dim() * dtype_bytes(geometry.index_dtype());
  const std::int64_t first = begin / kPanel;
  const std::int64_t panels = (end + kPanel - 1) / kPanel - first;
  for (const LayerLayout& layer : layout.layers) {
    if (layer.pooled != kAbsent) copy_range(from, to, layer.pooled + first * panel, panels * panel);
  }
}

}  // namespace seriatim
