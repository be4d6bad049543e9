// The rule on bare arrays, and the library's own facts.
#include <math.h>

#include "check.h"
#include "model.h"

static seriatim_error error;

static void selects_by_score_then_by_time(void) {
  const float scores[6] = {1.0f, 3.0f, 2.0f, 3.0f, 3.0f, -0.0f};
  int32_t scratch[6];
  int32_t chosen[4] = {9, 9, 9, 9};
  float told[4] = {9.0f, 9.0f, 9.0f, 9.0f};
  int64_t count = -1;
  CHECK(seriatim_select_scratch_entries(6) == 6 && seriatim_select_scratch_entries(-1) == -1);
  CHECK_OK(seriatim_select(scores, 6, 2, SERIATIM_NAN_REFUSE, scratch, 6, chosen, 4, told, -1, &count, &error));
  CHECK(count == 2 && chosen[0] == 1 && chosen[1] == 3 && chosen[2] == 9);
  CHECK(told[0] == 3.0f && told[1] == 3.0f && told[2] == 9.0f);
  CHECK_OK(seriatim_select(NULL, 0, 2, SERIATIM_NAN_REFUSE, NULL, 0, NULL, 0, NULL, -1, &count, &error));
  CHECK(count == 0);
}

static void a_nan_is_refused_or_excluded(void) {
  const float scores[3] = {1.0f, NAN, 2.0f};
  int32_t scratch[3];
  int32_t chosen[3] = {9, 9, 9};
  int64_t count = -1;
  CHECK_FAILS(seriatim_select(scores, 3, 3, SERIATIM_NAN_REFUSE, scratch, 3, chosen, 3, NULL, 5, &count, &error),
              SERIATIM_NOT_A_NUMBER, "scores");
  CHECK(error.row == 5 && error.index == 1 && count == -1 && chosen[0] == 9);
  CHECK_OK(seriatim_select(scores, 3, 3, SERIATIM_NAN_EXCLUDE, scratch, 3, chosen, 3, NULL, 5, &count, &error));
  CHECK(count == 2 && chosen[0] == 0 && chosen[1] == 2);
  CHECK_FAILS(seriatim_select(scores, 3, 3, 2, scratch, 3, chosen, 3, NULL, 5, &count, &error),
              SERIATIM_INVALID_ARGUMENT, "nan_policy");
}

static void rows_are_expanded_and_judged(const seriatim_geometry* geometry) {
  const int32_t groups[2] = {1, 4};
  int32_t row[kCapacity];
  int64_t count = -1;
  int32_t swap;
  CHECK_OK(seriatim_expand_row(geometry, 10, 23, groups, 2, row, kCapacity, -1, &count, &error));
  CHECK(count == 11 && row[0] == 14 && row[7] == 29 && row[8] == 30 && row[10] == 32 && row[11] == -1 &&
        row[kCapacity - 1] == -1);
  CHECK_OK(seriatim_check_ascending(10, 23, row, count, 3, &error));
  CHECK_OK(seriatim_check_row(geometry, 10, 23, row, count, 0, 3, &error));
  CHECK_FAILS(seriatim_check_row(geometry, 10, 23, row, count, 1, 3, &error), SERIATIM_NOT_CHRONOLOGICAL, "row");
  CHECK(error.row == 3);
  swap = row[2];
  row[2] = row[1];
  row[1] = swap;
  CHECK_FAILS(seriatim_check_ascending(10, 23, row, count, 3, &error), SERIATIM_NOT_CHRONOLOGICAL, "row");
  CHECK(error.row == 3 && error.index == 2);
  CHECK_FAILS(seriatim_check_ascending(10, 3, row, count, 3, &error), SERIATIM_INVALID_ARGUMENT, "row");
  CHECK_FAILS(seriatim_check_ascending(-1, 3, row, count, 3, &error), SERIATIM_INVALID_ARGUMENT, "anchor");
  CHECK_FAILS(seriatim_check_ascending(10, INT64_MAX, row, count, 3, &error), SERIATIM_INVALID_ARGUMENT, "visible");
}

// Pooling, scoring and the rule, each by itself, give the row that plan gives.
static void the_parts_give_the_planned_row(const seriatim_geometry* geometry) {
  enum { kTokens = 203, kGroups = kTokens / kGroup };
  static batch tokens;
  static answer planned;
  static float pooled_keys[kGroups * kIndexDim];
  static float scores[kGroups];
  static int32_t scratch[2 * kGroups];
  static int32_t row[kCapacity];
  static float zeros[kIndexDim];
  const int64_t weight_shape[1] = {kIndexDim};
  const int64_t raw_shape[2] = {kTokens, kIndexDim};
  const int64_t pooled_shape[2] = {kGroups, kIndexDim};
  const int64_t query_shape[2] = {kIndexHeads, kIndexDim};
  seriatim_tensor weight, raw, pooled, query;
  seriatim_cache_options options;
  seriatim_cache* cache = NULL;
  seriatim_transaction* step = NULL;
  seriatim_engine_options engine_options;
  seriatim_engine* engine = NULL;
  seriatim_layer layer;
  int64_t sequence = -1, entries = 0, count = -1;
  fill_batch(&tokens, 3, 0, 0, kTokens);
  CHECK_OK(seriatim_tensor_dense(zeros, SERIATIM_F32, 1, weight_shape, &weight, &error));
  CHECK_OK(seriatim_tensor_dense(tokens.index_keys, SERIATIM_F32, 2, raw_shape, &raw, &error));
  CHECK_OK(seriatim_tensor_dense(pooled_keys, SERIATIM_F32, 2, pooled_shape, &pooled, &error));
  CHECK_OK(seriatim_tensor_dense(tokens.index_queries + (kTokens - 1) * kIndexHeads * kIndexDim, SERIATIM_F32, 2,
                                 query_shape, &query, &error));
  CHECK_OK(seriatim_pool_keys(geometry, &weight, &raw, 0, NULL, &pooled, &error));
  CHECK_OK(seriatim_score_groups(geometry, &query, NULL, &pooled, scores, kGroups, &error));
  CHECK_OK(seriatim_plan_row_scratch_entries(geometry, kTokens, &entries, &error));
  CHECK(entries <= 2 * kGroups);
  CHECK_OK(seriatim_plan_row(geometry, 0, kTokens, scores, kGroups, SERIATIM_NAN_REFUSE, scratch, entries, row,
                             kCapacity, -1, &count, &error));

  seriatim_cache_options_init(&options);
  options.capacity_tokens = 512;
  CHECK_OK(seriatim_cache_create(geometry, &options, &cache, &error));
  seriatim_engine_options_init(&engine_options);
  engine_options.kernels = "reference";
  CHECK_OK(seriatim_engine_create(&engine_options, &engine, &error));
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  CHECK_OK(append_batch(step, sequence, 0, &tokens, &error));
  layer = layer_of_transaction(step, sequence, 0);
  CHECK_OK(answer_batch(&layer, &tokens, engine, &planned, &error));
  CHECK(count == kBudget + kTokens % kGroup && planned.counts[kTokens - 1] == count);
  CHECK(memcmp(row, planned.rows + (kTokens - 1) * kCapacity, sizeof row) == 0);
  seriatim_cache_destroy(cache);  // before its transaction
  seriatim_transaction_destroy(step);
  seriatim_engine_destroy(engine);
}

static void queries_are_prepared(const seriatim_geometry* geometry) {
  const int64_t weight_shape[1] = {kIndexDim};
  const int64_t shape[3] = {2, kIndexHeads, kIndexDim};
  const int64_t positions[2] = {0, 12345};
  static float zeros[kIndexDim], raw_values[2 * kIndexHeads * kIndexDim], prepared_values[2 * kIndexHeads * kIndexDim];
  seriatim_tensor weight, raw, prepared;
  double squares = 0.0;
  int i;
  for (i = 0; i < 2 * kIndexHeads * kIndexDim; ++i) raw_values[i] = (float)(i % 7) - 2.5f;
  CHECK_OK(seriatim_tensor_dense(zeros, SERIATIM_F32, 1, weight_shape, &weight, &error));
  CHECK_OK(seriatim_tensor_dense(raw_values, SERIATIM_F32, 3, shape, &raw, &error));
  CHECK_OK(seriatim_tensor_dense(prepared_values, SERIATIM_F32, 3, shape, &prepared, &error));
  CHECK_OK(seriatim_prepare_index_queries(geometry, &weight, &raw, positions, 2, NULL, &prepared, &error));
  for (i = 0; i < kIndexDim; ++i) squares += (double)prepared_values[i] * (double)prepared_values[i];
  CHECK(fabs(squares - kIndexDim) < 1e-3);  // normed; a rotation keeps it so
  CHECK_FAILS(seriatim_prepare_index_queries(geometry, &weight, &raw, positions, 1, NULL, &prepared, &error),
              SERIATIM_INVALID_ARGUMENT, "positions");
}

static void the_library_says_what_it_is(void) {
  const char* name = NULL;
  int64_t kernels = 0;
  int chosen_is_listed = 0;
  CHECK(strcmp(seriatim_version(), EXPECTED_VERSION) == 0);
  CHECK(strcmp(seriatim_status_name(SERIATIM_NOT_CONTIGUOUS), "NotContiguous") == 0);
  CHECK(strcmp(seriatim_status_name(SERIATIM_INTERNAL), "Internal") == 0);
  CHECK(strcmp(seriatim_status_name(-1), "Unknown") == 0);
  CHECK_OK(seriatim_kernels_chosen(&name, &error));
  while (seriatim_kernels_name(kernels) != NULL) {
    chosen_is_listed += strcmp(name, seriatim_kernels_name(kernels)) == 0;
    ++kernels;
  }
  CHECK(kernels >= 1 && chosen_is_listed == 1 && strcmp(seriatim_kernels_name(kernels - 1), "reference") == 0);
  CHECK(seriatim_kernels_name(-1) == NULL && seriatim_kernels_name(INT64_MAX) == NULL);
}

static void a_geometry_tells_every_field(void) {
  static const float inv_freq[4] = {1.0f, 0.5f, 0.25f, 0.125f};
  static const uint8_t axes[4] = {0, 1, 2, 0};
  seriatim_geometry_options given, defaults, got;
  seriatim_geometry* geometry = NULL;
  model_options(&given);
  given.index_rotary_dim = 8;
  given.inv_freq = inv_freq;
  given.inv_freq_count = 4;
  given.rope_axes = axes;
  given.rope_axes_count = 4;
  given.value_dim = 8;
  given.values_alias_keys = 1;
  given.softmax_scale = 0.5f;
  given.relu = 0;
  given.scale_at = SERIATIM_SCALE_AFTER_RELU;
  given.kv_dtype = SERIATIM_BF16;
  given.index_dtype = SERIATIM_F16;
  CHECK_OK(seriatim_geometry_create(&given, &geometry, &error));
  seriatim_geometry_options_init(&got);
  CHECK_OK(seriatim_geometry_get(geometry, &got, &error));
  CHECK(got.value_dim == 8 && got.values_alias_keys == 1 && got.softmax_scale == 0.5f && got.relu == 0);
  CHECK(got.scale_at == SERIATIM_SCALE_AFTER_RELU && got.kv_dtype == SERIATIM_BF16 && got.index_dtype == SERIATIM_F16);
  CHECK(got.inv_freq_count == 4 && memcmp(got.inv_freq, inv_freq, sizeof inv_freq) == 0);
  CHECK(got.rope_axes_count == 4 && memcmp(got.rope_axes, axes, sizeof axes) == 0);
  seriatim_geometry_destroy(geometry);
  seriatim_geometry_options_init(&defaults);
  CHECK_OK(seriatim_geometry_create(&defaults, &geometry, &error));
  CHECK_OK(seriatim_geometry_get(geometry, &got, &error));
  CHECK(got.group_tokens == 4 && got.budget_tokens == 2048 && got.head_dim == 256 && got.value_dim == 256);
  CHECK(got.softmax_scale == 0.0625f && got.inv_freq_count == 32 && got.inv_freq[0] == 1.0f &&
        got.rope_axes_count == 0);
  seriatim_geometry_destroy(geometry);
}

// minimax_m3_vl in small: blocks of 4, the newest forced and partial.
static void blocks_and_forced_groups_are_options(void) {
  const float scores[4] = {1.0f, 3.0f, 2.0f, NAN};
  int32_t scratch[16], row[8];
  int64_t count = -1;
  seriatim_row_shape shape;
  seriatim_geometry_options options, got;
  seriatim_geometry* geometry = NULL;
  seriatim_geometry_options_init(&options);
  CHECK(options.selections == 1 && options.tail == SERIATIM_TAIL_RAW && options.forced_newest == 0);
  options.group_tokens = 4;
  options.budget_tokens = 8;
  options.pooling = SERIATIM_POOLING_UNIT_MAX;
  options.tail = SERIATIM_TAIL_GROUP;
  options.forced_newest = 1;
  options.selections = 2;
  CHECK_OK(seriatim_geometry_create(&options, &geometry, &error));
  seriatim_geometry_options_init(&got);
  CHECK_OK(seriatim_geometry_get(geometry, &got, &error));
  CHECK(got.selections == 2 && got.tail == SERIATIM_TAIL_GROUP && got.forced_newest == 1 && got.forced_first == 0);
  CHECK_OK(seriatim_geometry_row_shape(geometry, 14, &shape, &error));
  CHECK(shape.groups == 4 && shape.tail_tokens == 0 && shape.row_capacity == 8 && shape.row_width == 6);
  CHECK_OK(
      seriatim_plan_row(geometry, 100, 14, scores, 4, SERIATIM_NAN_REFUSE, scratch, 16, row, 8, -1, &count, &error));
  CHECK(count == 6 && row[0] == 104 && row[3] == 107 && row[4] == 112 && row[5] == 113 && row[6] == -1);
  CHECK_OK(seriatim_check_row(geometry, 100, 14, row, count, 1, -1, &error));
  seriatim_geometry_destroy(geometry);
  options.forced_first = 2;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "forced_newest");
  options.forced_first = 0;
  options.tail = 2;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "tail");
}

int main(void) {
  seriatim_geometry* geometry;
  seriatim_error_init(&error);
  geometry = model_geometry();
  selects_by_score_then_by_time();
  a_nan_is_refused_or_excluded();
  rows_are_expanded_and_judged(geometry);
  the_parts_give_the_planned_row(geometry);
  queries_are_prepared(geometry);
  the_library_says_what_it_is();
  a_geometry_tells_every_field();
  blocks_and_forced_groups_are_options();
  seriatim_geometry_destroy(geometry);
  return checks_end();
}
