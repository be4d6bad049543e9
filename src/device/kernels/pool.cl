// Pooling on the device: a lane pools one group, from the raw keys in its token pages into its lane of the panel.

FN i64 token_at(GLOBAL const i64* pages, const LayerArgs* layer, i64 token) {
  return pages[(layer->first_slot + token) / layer->page_tokens];
}

FN i64 pooled_at(GLOBAL const i64* pages, const LayerArgs* layer, i64 index_dim, i64 group) {
  const i64 slot = layer->first_group_slot + group;
  const i64 in_page = slot % layer->page_groups;
  const i64 element = in_page / PANEL_GROUPS * (PANEL_GROUPS * index_dim) + in_page % PANEL_GROUPS;
  return pages[slot / layer->page_groups] + layer->pooled_offset + element * bytes_of(INDEX_DTYPE);
}

KERNEL void pool_groups(GLOBAL u8* memory, GLOBAL const i64* token_pages, GLOBAL const i64* pooled_pages,
                        GLOBAL const f32* norm_weight, GLOBAL const f32* inv_freq, GLOBAL const u8* axes,
                        LayerArgs layer, ShapeArgs shape, i64 first_group, i64 groups) {
  const i64 place = GROUP(0) * WORK_GROUP + LANE;
  if (place >= groups) return;
  const i64 group = first_group + place;
  const i64 first_token = group * shape.group_tokens;
  const i64 element = bytes_of(INDEX_DTYPE);
  GLOBAL u8* x = memory + pooled_at(pooled_pages, &layer, shape.index_dim, group);
  const i64 stride = PANEL_GROUPS * element;

  // What is stored is rounded to the index dtype at each step, so the panel itself can hold every step.
  f32 squares = 0.0f;
  for (i64 i = 0; i < shape.index_dim; ++i) {
    f32 sum = 0.0f;
    for (i64 t = 0; t < shape.group_tokens; ++t) {
      const i64 token = first_token + t;
      const i64 slot = (layer.first_slot + token) % layer.page_tokens;
      const i64 raw = token_at(token_pages, &layer, token) + layer.raw_offset + (slot * shape.index_dim + i) * element;
      const f32 value = load_as(INDEX_DTYPE, memory + raw);
      sum = t == 0 ? value : sum + value;
    }
    const f32 mean = round_as(INDEX_DTYPE, DIV32(sum, (f32)shape.group_tokens));
    store_as(INDEX_DTYPE, x + i * stride, mean);
    squares = FMA32(mean, mean, squares);
  }
  const f32 mean_square = DIV32(squares, (f32)shape.index_dim);
  const f32 inverse = DIV32(1.0f, SQRT32(mean_square + shape.norm_eps));
  for (i64 i = 0; i < shape.index_dim; ++i) {
    const f32 weight = 1.0f + norm_weight[i];
    store_as(INDEX_DTYPE, x + i * stride, (load_as(INDEX_DTYPE, x + i * stride) * inverse) * weight);
  }
  const i64 slot = (layer.first_slot + first_token) % layer.page_tokens;
  for (i64 i = 0; i < shape.rotary_pairs; ++i) {
    i32 at = (i32)(layer.anchor + first_token);
    if (layer.coordinates_offset >= 0) {
      const i64 triple = token_at(token_pages, &layer, first_token) + layer.coordinates_offset + slot * 12;
      at = *(GLOBAL const i32*)(memory + triple + 4 * axes[i]);
    }
    f32 cosine = 0.0f;
    f32 sine = sincos32_of((f32)at * inv_freq[i], &cosine);
    sine = round_as(INDEX_DTYPE, sine);
    cosine = round_as(INDEX_DTYPE, cosine);
    const f32 first = load_as(INDEX_DTYPE, x + i * stride);
    const f32 second = load_as(INDEX_DTYPE, x + (i + shape.rotary_pairs) * stride);
    store_as(INDEX_DTYPE, x + i * stride, round_as(INDEX_DTYPE, first * cosine) - round_as(INDEX_DTYPE, second * sine));
    store_as(INDEX_DTYPE, x + (i + shape.rotary_pairs) * stride,
             round_as(INDEX_DTYPE, second * cosine) + round_as(INDEX_DTYPE, first * sine));
  }
}
