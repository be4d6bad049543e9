// Scores on the device: a lane scores one group for one query; its chains run over the dims, heads in their order.

#define HEADS_AT_ONCE 4

FN bool needs_scores(i64 groups, i64 budget_groups, i32 exclude_nan) {
  return exclude_nan != 0 || groups > budget_groups;
}

KERNEL void score_groups(GLOBAL const u8* memory, GLOBAL const i64* pooled_pages, GLOBAL const f32* queries,
                         GLOBAL const f32* head_weights, GLOBAL const i64* visible, GLOBAL f32* scores, LayerArgs layer,
                         ShapeArgs shape, i64 score_stride, i32 weighted, i32 exclude_nan) {
  const i64 group = GROUP(0) * WORK_GROUP + LANE;
  const i64 query = GROUP(1);
  const i64 groups = visible[query] / shape.group_tokens;
  if (group >= groups || !needs_scores(groups, shape.budget_groups, exclude_nan)) return;
  GLOBAL const u8* key = memory + pooled_at(pooled_pages, &layer, shape.index_dim, group);
  const i64 stride = PANEL_GROUPS * bytes_of(INDEX_DTYPE);
  GLOBAL const f32* q = queries + query * shape.index_heads * shape.index_dim;
  f32 sum = 0.0f;
  for (i64 first = 0; first < shape.index_heads; first += HEADS_AT_ONCE) {
    const i64 last = shape.index_heads - 1;
    f32 dots[HEADS_AT_ONCE];
    i64 from[HEADS_AT_ONCE];
    for (i32 h = 0; h < HEADS_AT_ONCE; ++h) {
      dots[h] = 0.0f;
      from[h] = (first + h < last ? first + h : last) * shape.index_dim;
    }
    for (i64 i = 0; i < shape.index_dim; ++i) {
      const f32 x = load_as(INDEX_DTYPE, key + i * stride);
      for (i32 h = 0; h < HEADS_AT_ONCE; ++h) dots[h] = FMA32(q[from[h] + i], x, dots[h]);
    }
    for (i32 h = 0; h < HEADS_AT_ONCE && first + h <= last; ++h) {
      f32 value = dots[h];
      if (shape.scale_at == SCALE_BEFORE_RELU) value = value * shape.inverse_sqrt_dim;
      if (shape.relu != 0) value = value < 0.0f ? 0.0f : value;
      if (shape.scale_at == SCALE_AFTER_RELU) value = value * shape.inverse_sqrt_dim;
      sum = weighted != 0 ? FMA32(head_weights[query * shape.index_heads + first + h], value, sum) : sum + value;
    }
  }
  scores[query * score_stride + group] = shape.scale_at == SCALE_AFTER_SUM ? DIV32(sum, shape.sqrt_dim) : sum;
}
