// What kernels are told of a layer, by value. Read by the host's compiler too, so that the two layouts are one.

// Where a layer's state lies. Offsets are bytes from a page's start; a table has each page's place in the device's
// memory.
typedef struct LayerArgs {
  i64 anchor;
  i64 page_tokens;
  i64 first_slot;
  i64 key_offset;
  i64 value_offset;
  i64 raw_offset;
  i64 coordinates_offset;  // -1: positions serve
  i64 page_groups;
  i64 first_group_slot;
  i64 pooled_offset;
} LayerArgs;

typedef struct ShapeArgs {
  i64 group_tokens;
  i64 budget_groups;
  i64 row_capacity;
  i64 query_heads;
  i64 kv_heads;
  i64 head_dim;
  i64 value_dim;
  i64 index_heads;
  i64 index_dim;
  i64 rotary_pairs;
  i32 values_alias_keys;
  i32 relu;
  i32 scale_at;
  f32 softmax_scale;
  f32 norm_eps;
  f32 sqrt_dim;
  f32 inverse_sqrt_dim;
  f32 unused;
} ShapeArgs;
