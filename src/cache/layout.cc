#include "cache/layout.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/checked.hpp"
#include "base/format.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;
constexpr std::int64_t kLeastPageTokens = 256;
constexpr std::int64_t kMostPageTokens = std::int64_t{1} << 31;

// Lays blocks end to end, each aligned. Once a size does not fit, every later one is absent too.
class Blocks {
 public:
  explicit Blocks(std::vector<Layout::Block>& blocks) : blocks_(blocks) {}

  std::int64_t add(std::initializer_list<std::int64_t> extents, DType dtype, std::int64_t* owner_bytes) {
    const std::int64_t offset = end_.value_or(0);
    const auto elements = checked_product(extents);
    const auto bytes = elements ? checked_mul(*elements, dtype_bytes(dtype)) : std::nullopt;
    const auto padded = bytes ? checked_add(*bytes, kBlockAlignment - 1) : std::nullopt;
    const std::int64_t aligned = padded.value_or(0) / kBlockAlignment * kBlockAlignment;
    end_ = end_ && padded ? checked_add(*end_, aligned) : std::nullopt;
    if (!end_) return offset;
    *owner_bytes += aligned;
    padded_ = padded_ || aligned != *bytes;
    blocks_.push_back({offset, aligned, dtype});
    return offset;
  }
  std::optional<std::int64_t> end() const { return end_; }
  bool padded() const { return padded_; }

 private:
  std::vector<Layout::Block>& blocks_;
  std::optional<std::int64_t> end_ = 0;
  bool padded_ = false;
};

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
  layout.page_groups = layout.page_tokens / geometry.group_tokens();
  const DType kv = geometry.kv_dtype();
  const DType index = geometry.index_dtype();
  const std::int64_t heads = geometry.kv_heads();
  Blocks tokens(layout.token_blocks);
  Blocks pooled(layout.pooled_blocks);
  std::int64_t pooled_bytes = 0;
  for (const LayerParameters& layer : options.layers) {
    LayerLayout at;
    if (!options.index_only) {
      at.keys = tokens.add({heads, layout.page_tokens, geometry.head_dim()}, kv, &layout.keys_values_bytes);
    }
    if (!options.index_only && !geometry.values_alias_keys()) {
      at.values = tokens.add({heads, layout.page_tokens, geometry.value_dim()}, kv, &layout.keys_values_bytes);
    }
    if (layer.indexed && geometry.pooling() != Pooling::kNone) {
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
    copy_block(layer.raw, 1, row_bytes(geometry.index_dtype(), geometry.index_dim()));
  }
  copy_block(layout.coordinates, 1, sizeof(Coordinates));
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
