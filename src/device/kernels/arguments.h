// Numbers that the host's enums and constants have too; src/device/shape.cc holds them together.
#define DTYPE_F32 0
#define DTYPE_BF16 1
#define DTYPE_F16 2
#define SCALE_AFTER_SUM 0
#define SCALE_BEFORE_RELU 1
#define SCALE_AFTER_RELU 2
#define SPLIT_ENTRIES 128  // of a row, one chain
#define PANEL_GROUPS 16    // pooled keys that lie side by side
#define BLOCK_HEADS 16     // query heads of one work-group

// What kernels are told of a layer, by value. Read by the host's compiler too, so that the two layouts are one.

// Where a layer's state lies. Offsets are bytes from a page's start; a table has each page's place in the device's
// memory. Keys and values stand in blocks of block_tokens slots, block_bytes apart: for each kv head, head_bytes apart,
// keys and, from value_offset on, values.
typedef struct LayerArgs {
  i64 anchor;
  i64 page_tokens;
  i64 block_tokens;
  i64 block_bytes;
  i64 head_bytes;
  i64 key_bytes;    // from token to token
  i64 value_bytes;  // the same of values
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
