// Gather and attend on the device: a work-group reduces one split of 128 row entries for up to 16 heads that read one
// kv head; a second kernel folds the splits of one head in their order. A lane is a row entry while logits are formed,
// a value dim while values are summed; the denominator is a chain of its own.

#define PARTIAL_HEAD 3  // maximum, denominator, whether a logit was not finite; then the sums

KERNEL void attend_splits(GLOBAL const u8* memory, GLOBAL const i64* token_pages, GLOBAL const f32* queries,
                          GLOBAL const i32* rows, GLOBAL const i32* widths, GLOBAL f32* partials, LayerArgs layer,
                          ShapeArgs shape, i64 splits) {
  LOCAL f32 weights[BLOCK_HEADS][SPLIT_ENTRIES];
  LOCAL i64 keys_at[SPLIT_ENTRIES];
  LOCAL i64 values_at[SPLIT_ENTRIES];
  LOCAL f32 maxima[BLOCK_HEADS];
  const i64 split = GROUP(0);
  const i64 query = GROUP(2);
  const i64 heads_per_kv = shape.query_heads / shape.kv_heads;
  const i64 blocks = (heads_per_kv + BLOCK_HEADS - 1) / BLOCK_HEADS;
  const i64 kv_head = GROUP(1) / blocks;
  const i64 first_of_block = GROUP(1) % blocks * BLOCK_HEADS;
  const i64 heads = heads_per_kv - first_of_block < BLOCK_HEADS ? heads_per_kv - first_of_block : BLOCK_HEADS;
  const i64 first_head = kv_head * heads_per_kv + first_of_block;
  const i64 left = widths[query] - split * SPLIT_ENTRIES;
  const i64 entries = left < 0 ? 0 : left < SPLIT_ENTRIES ? left : SPLIT_ENTRIES;
  GLOBAL const i32* row = rows + query * shape.row_capacity + split * SPLIT_ENTRIES;
  const i64 element = bytes_of(KV_DTYPE);

  for (i64 j = LANE; j < entries; j += WORK_GROUP) {
    const i64 slot = layer.first_slot + (row[j] - layer.anchor);
    const i64 in_page = slot % layer.page_tokens;
    const i64 in_block = in_page % layer.block_tokens;
    const i64 head = token_pages[slot / layer.page_tokens] + in_page / layer.block_tokens * layer.block_bytes +
                     kv_head * layer.head_bytes;
    keys_at[j] = head + layer.key_offset + in_block * layer.key_bytes;
    values_at[j] = head + layer.value_offset + in_block * layer.value_bytes;
  }
  BARRIER;

  i64 from[BLOCK_HEADS];
  for (i32 h = 0; h < BLOCK_HEADS; ++h) {
    from[h] = (query * shape.query_heads + first_head + (h < heads ? h : heads - 1)) * shape.head_dim;
  }
  for (i64 j = LANE; j < entries; j += WORK_GROUP) {
    GLOBAL const u8* key = memory + keys_at[j];
    f32 dots[BLOCK_HEADS];
    for (i32 h = 0; h < BLOCK_HEADS; ++h) dots[h] = 0.0f;
    for (i64 i = 0; i < shape.head_dim; ++i) {
      const f32 x = load_as(KV_DTYPE, key + i * element);
      for (i32 h = 0; h < BLOCK_HEADS; ++h) dots[h] = FMA32(queries[from[h] + i], x, dots[h]);
    }
    for (i32 h = 0; h < BLOCK_HEADS; ++h) weights[h][j] = dots[h] * shape.softmax_scale;
  }
  BARRIER;

  GLOBAL f32* partial =
      partials + ((query * splits + split) * shape.query_heads + first_head) * (PARTIAL_HEAD + shape.value_dim);
  const i64 partial_floats = PARTIAL_HEAD + shape.value_dim;
  for (i64 h = LANE; h < heads; h += WORK_GROUP) {
    if (entries == 0) continue;
    f32 max = weights[h][0];
    bool finite = true;
    for (i64 j = 0; j < entries; ++j) {
      finite = finite && is_finite(weights[h][j]);
      max = max < weights[h][j] ? weights[h][j] : max;
    }
    maxima[h] = max;
    partial[h * partial_floats] = max;
    partial[h * partial_floats + 2] = finite ? 0.0f : 1.0f;
  }
  BARRIER;
  for (i64 at = LANE; at < heads * entries; at += WORK_GROUP) {
    const i64 h = at / entries;
    const i64 j = at % entries;
    weights[h][j] = exp32(weights[h][j] - maxima[h]);
  }
  BARRIER;
  for (i64 h = LANE; h < heads; h += WORK_GROUP) {
    f32 den = 0.0f;
    for (i64 j = 0; j < entries; ++j) den = den + weights[h][j];
    if (entries > 0) partial[h * partial_floats + 1] = den;
  }
  if (entries == 0) return;
  for (i64 d = LANE; d < shape.value_dim; d += WORK_GROUP) {
    f32 sums[BLOCK_HEADS];
    for (i32 h = 0; h < BLOCK_HEADS; ++h) sums[h] = 0.0f;
    for (i64 j = 0; j < entries; ++j) {
      const f32 value = load_as(KV_DTYPE, memory + values_at[j] + d * element);
      for (i32 h = 0; h < BLOCK_HEADS; ++h) sums[h] = FMA32(weights[h][j], value, sums[h]);
    }
    for (i32 h = 0; h < BLOCK_HEADS && h < heads; ++h) partial[h * partial_floats + PARTIAL_HEAD + d] = sums[h];
  }
}

KERNEL void fold_splits(GLOBAL const f32* partials, GLOBAL const f32* sinks, GLOBAL const i32* widths,
                        GLOBAL u8* output, GLOBAL f32* lse, GLOBAL i32* overflow, ShapeArgs shape, i64 splits,
                        i32 has_sinks, i32 output_dtype) {
  LOCAL u32 sums[WORK_GROUP];
  const i64 head = GROUP(0);
  const i64 query = GROUP(1);
  const i64 entries = widths[query];
  const i64 partial_floats = PARTIAL_HEAD + shape.value_dim;
  const i64 own_splits = (entries + SPLIT_ENTRIES - 1) / SPLIT_ENTRIES;
  const i64 place = query * shape.query_heads + head;
  GLOBAL u8* out = output + place * shape.value_dim * bytes_of(output_dtype);

  u32 bad = 0u;
  for (i64 d = LANE; d < shape.value_dim; d += WORK_GROUP) {
    bool any = has_sinks != 0;
    f32 max = any ? sinks[head] : 0.0f;
    f32 den = 1.0f;
    f32 sum = 0.0f;
    for (i64 split = 0; split < own_splits; ++split) {
      GLOBAL const f32* partial = partials + ((query * splits + split) * shape.query_heads + head) * partial_floats;
      const f32 value = partial[PARTIAL_HEAD + d];
      bad = partial[2] != 0.0f ? 1u : bad;
      if (!any) {
        max = partial[0];
        den = partial[1];
        sum = value;
        any = true;
      } else {
        const f32 greater = max < partial[0] ? partial[0] : max;
        const f32 a = exp32(max - greater);
        const f32 b = exp32(partial[0] - greater);
        den = FMA32(den, a, partial[1] * b);
        sum = FMA32(sum, a, value * b);
        max = greater;
      }
    }
    const f32 result = any ? DIV32(sum, den) : 0.0f;
    bad = is_finite(round_as(output_dtype, result)) ? bad : 1u;
    store_as(output_dtype, out + d * bytes_of(output_dtype), result);
    if (d == 0) lse[place] = any ? max + log32(den) : -FLOAT_OF(INFINITY_BITS);
  }
  u32 all_bad = 0u;
  sum_before(sums, bad, &all_bad);
  if (LANE == 0) overflow[place] = all_bad != 0u ? 1 : 0;
  if (all_bad == 0u) return;
  for (i64 d = LANE; d < shape.value_dim; d += WORK_GROUP) {
    store_as(output_dtype, out + d * bytes_of(output_dtype), QUIET_NAN);
  }
  if (LANE == 0) lse[place] = QUIET_NAN;
}
