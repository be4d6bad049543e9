#include "device/shape.hpp"

#include <cmath>

#include "seriatim/attend.hpp"

namespace seriatim::device {

static_assert(sizeof(LayerArgs) == 15 * 8 && sizeof(ShapeArgs) == 10 * 8 + 8 * 4,
              "no padding that another compiler could lay out otherwise");

// The kernels' numbers are the host's.
static_assert(DTYPE_F32 == static_cast<int>(DType::kF32) && DTYPE_BF16 == static_cast<int>(DType::kBf16) &&
              DTYPE_F16 == static_cast<int>(DType::kF16));
static_assert(SCALE_AFTER_SUM == static_cast<int>(ScaleAt::kAfterSum) &&
              SCALE_BEFORE_RELU == static_cast<int>(ScaleAt::kBeforeRelu) &&
              SCALE_AFTER_RELU == static_cast<int>(ScaleAt::kAfterRelu));
static_assert(SPLIT_ENTRIES == kSplitEntries && PANEL_GROUPS == PooledKeys::kPanelGroups);

ShapeArgs shape_args(const Geometry& geometry) {
  ShapeArgs shape{};
  shape.group_tokens = geometry.group_tokens();
  shape.budget_groups = geometry.budget_groups();
  shape.row_capacity = geometry.row_capacity();
  shape.query_heads = geometry.query_heads();
  shape.kv_heads = geometry.kv_heads();
  shape.head_dim = geometry.head_dim();
  shape.value_dim = geometry.value_dim();
  shape.index_heads = geometry.index_heads();
  shape.index_dim = geometry.index_dim();
  shape.rotary_pairs = geometry.index_rotary_dim() / 2;
  shape.values_alias_keys = geometry.values_alias_keys() ? 1 : 0;
  shape.relu = geometry.relu() ? 1 : 0;
  shape.scale_at = static_cast<std::int32_t>(geometry.scale_at());
  shape.softmax_scale = geometry.softmax_scale();
  shape.norm_eps = geometry.norm_eps();
  shape.sqrt_dim = std::sqrt(static_cast<float>(geometry.index_dim()));
  shape.inverse_sqrt_dim = static_cast<float>(1.0 / std::sqrt(static_cast<double>(geometry.index_dim())));
  return shape;
}

LayerArgs layer_args(const LayerView& view) {
  LayerArgs layer{};
  layer.anchor = view.run.anchor;
  layer.page_tokens = view.page_tokens;
  layer.block_tokens = view.block_tokens;
  layer.block_bytes = view.block_bytes;
  layer.head_bytes = view.key_strides.head_bytes;
  layer.key_bytes = view.key_strides.token_bytes;
  layer.value_bytes = view.value_strides.token_bytes;
  layer.first_slot = view.first_slot;
  layer.key_offset = view.key_offset_bytes;
  layer.value_offset = view.value_offset_bytes;
  layer.raw_offset = view.raw_offset_bytes;
  layer.coordinates_offset = view.coordinates_offset_bytes;
  layer.page_groups = view.pooled.page_groups;
  layer.first_group_slot = view.pooled.first_slot;
  layer.pooled_offset = view.pooled.offset_bytes;
  return layer;
}

}  // namespace seriatim::device
