// The life of two conversations in one cache, by the C ABI alone: appended, read, forked, cut, saved and restored.
// Every answer is compared in bits with that of a fresh cache fed the same tokens.
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kLayers = 2, kFirst = 150, kMore = 30 };

static seriatim_error error;
static batch tokens;
static answer got;
static answer wanted;

static seriatim_cache* new_cache(const seriatim_geometry* geometry) {
  seriatim_cache_options options;
  seriatim_cache* cache = NULL;
  seriatim_cache_options_init(&options);
  options.layer_count = kLayers;
  options.capacity_tokens = 4096;
  CHECK_OK(seriatim_cache_create(geometry, &options, &cache, &error));
  return cache;
}

static void append_all(seriatim_transaction* step, int64_t sequence, int64_t text, int64_t first, int64_t count) {
  int64_t layer;
  for (layer = 0; layer < kLayers; ++layer) {
    fill_batch(&tokens, text, layer, first, count);
    CHECK_OK(append_batch(step, sequence, layer, &tokens, &error));
  }
}

static void feed(seriatim_cache* cache, int64_t sequence, int64_t text, int64_t first, int64_t count) {
  seriatim_transaction* step = NULL;
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  append_all(step, sequence, text, first, count);
  CHECK_OK(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
}

static int64_t tokens_of(const seriatim_cache* cache, int64_t sequence) {
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  int64_t anchor = -1;
  int64_t count = -1;
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  CHECK_OK(seriatim_layer_run(&layer, &anchor, &count, &error));
  seriatim_snapshot_destroy(snapshot);
  return count;
}

static void ask(const seriatim_cache* cache, int64_t sequence, int64_t text, int64_t layer, int64_t first,
                int64_t count, seriatim_engine* engine, answer* result) {
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer read;
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  read = layer_of_snapshot(snapshot, layer);
  fill_batch(&tokens, text, layer, first, count);
  CHECK_OK(answer_batch(&read, &tokens, engine, result, &error));
  CHECK_OK(seriatim_snapshot_check(snapshot, &error));
  seriatim_snapshot_destroy(snapshot);
}

// Whether a sequence answers as one that was fed `count` tokens of `text` from `first` in one go.
static void check_holds(const seriatim_cache* cache, int64_t sequence, int64_t text, int64_t first, int64_t count,
                        const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_cache* fresh = new_cache(geometry);
  int64_t other = -1;
  int64_t layer;
  CHECK_OK(seriatim_cache_add(fresh, first, &other, &error));
  feed(fresh, other, text, first, count);
  CHECK(tokens_of(cache, sequence) == count);
  for (layer = 0; layer < kLayers; ++layer) {
    ask(fresh, other, text, layer, first, count, engine, &wanted);
    ask(cache, sequence, text, layer, first, count, engine, &got);
    CHECK(same_answer(&got, &wanted, count));
  }
  seriatim_cache_destroy(fresh);
}

static void check_rows(const seriatim_geometry* geometry, int64_t anchor, int64_t count) {
  int64_t q;
  for (q = 0; q < count; ++q) {
    seriatim_row_shape shape;
    CHECK_OK(seriatim_geometry_row_shape(geometry, q + 1, &shape, &error));
    CHECK(shape.row_capacity == kCapacity && shape.row_width == got.counts[q]);
    CHECK_OK(seriatim_check_row(geometry, anchor, q + 1, got.rows + q * kCapacity, got.counts[q], 1, q, &error));
  }
}

// A staged token is visible to its own query; the commit changes no bit.
static void staged_and_published_answers_are_the_same(seriatim_cache* cache, int64_t sequence,
                                                      const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_transaction* step = NULL;
  seriatim_layer staged;
  seriatim_work work;
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  append_all(step, sequence, 1, 7, kFirst);
  CHECK(tokens_of(cache, sequence) == 0);
  staged = layer_of_transaction(step, sequence, 1);
  fill_batch(&tokens, 1, 1, 7, kFirst);
  CHECK_OK(answer_batch(&staged, &tokens, engine, &wanted, &error));
  CHECK_OK(seriatim_transaction_commit(step, &error));
  CHECK_FAILS(seriatim_transaction_commit(step, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  seriatim_transaction_destroy(step);
  ask(cache, sequence, 1, 1, 7, kFirst, engine, &got);
  CHECK(same_answer(&got, &wanted, kFirst));
  check_rows(geometry, 7, kFirst);
  seriatim_work_init(&work);
  CHECK_OK(seriatim_engine_work(engine, &work, &error));
  CHECK(work.queries > 0 && work.dense_rows > 0 && work.groups_selected > 0);
  CHECK_OK(seriatim_engine_clear_work(engine, &error));
  CHECK_OK(seriatim_engine_work(engine, &work, &error));
  CHECK(work.queries == 0 && work.row_tokens == 0);
}

static void below_the_budget_it_is_dense(const seriatim_geometry* geometry) {
  const int64_t key_shape[3] = {kCapacity, kKvHeads, kDim};
  const int64_t query_shape[2] = {kHeads, kDim};
  static float output[kHeads * kDim];
  static float lse[kHeads];
  seriatim_tensor keys;
  seriatim_tensor values;
  seriatim_tensor query;
  seriatim_tensor out;
  int64_t visible;
  fill_batch(&tokens, 1, 1, 7, kFirst);
  CHECK_OK(seriatim_tensor_dense(tokens.keys, SERIATIM_F32, 3, key_shape, &keys, &error));
  CHECK_OK(seriatim_tensor_dense(tokens.values, SERIATIM_F32, 3, key_shape, &values, &error));
  CHECK_OK(seriatim_tensor_dense(output, SERIATIM_F32, 2, query_shape, &out, &error));
  for (visible = 1; visible <= kCapacity; ++visible) {
    CHECK_OK(seriatim_tensor_dense(tokens.queries + (visible - 1) * kHeads * kDim, SERIATIM_F32, 2, query_shape, &query,
                                   &error));
    CHECK_OK(seriatim_dense_attend(geometry, visible, &query, &keys, &values, NULL, 0, &out, lse, kHeads, &error));
    CHECK(memcmp(output, got.output + (visible - 1) * kHeads * kDim, sizeof output) == 0);
    CHECK(memcmp(lse, got.lse + (visible - 1) * kHeads, sizeof lse) == 0);
  }
  CHECK_FAILS(
      seriatim_dense_attend(geometry, kCapacity + 1, &query, &keys, &values, NULL, 0, &out, lse, kHeads, &error),
      SERIATIM_INVALID_ARGUMENT, "visible");
}

static void transactions_end_in_every_way(seriatim_cache* cache, int64_t sequence, const seriatim_geometry* geometry,
                                          seriatim_engine* engine) {
  seriatim_transaction* step = NULL;
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  append_all(step, sequence, 1, 7 + kFirst, kMore);
  CHECK_OK(seriatim_transaction_rollback(step, &error));
  seriatim_transaction_destroy(step);
  CHECK(tokens_of(cache, sequence) == kFirst);
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  append_all(step, sequence, 1, 7 + kFirst, kMore);
  seriatim_transaction_destroy(step);  // rolls back
  CHECK(tokens_of(cache, sequence) == kFirst);
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  append_all(step, sequence, 1, 7 + kFirst, kMore);
  CHECK_OK(seriatim_transaction_keep(step, sequence, 10, &error));
  append_all(step, sequence, 1, 7 + kFirst + 10, 3);
  CHECK_OK(seriatim_transaction_commit_prefix(step, 12, &error));
  seriatim_transaction_destroy(step);
  check_holds(cache, sequence, 1, 7, kFirst + 12, geometry, engine);
}

static void forks_and_cuts(seriatim_cache* cache, int64_t sequence, const seriatim_geometry* geometry,
                           seriatim_engine* engine) {
  int64_t forked = -1;
  int64_t copied = -1;
  CHECK_OK(seriatim_cache_fork(cache, sequence, &forked, &error));
  CHECK_OK(seriatim_cache_truncate(cache, forked, 101, &error));
  feed(cache, forked, 1, 7 + 101, 20);
  check_holds(cache, forked, 1, 7, 121, geometry, engine);
  check_holds(cache, sequence, 1, 7, kFirst + 12, geometry, engine);
  CHECK_OK(seriatim_cache_evict_prefix(cache, forked, 18, &error));
  check_holds(cache, forked, 1, 25, 103, geometry, engine);
  CHECK_OK(seriatim_cache_add(cache, 11, &copied, &error));
  CHECK_OK(seriatim_cache_copy(cache, sequence, 11, 90, copied, &error));
  check_holds(cache, copied, 1, 11, 90, geometry, engine);
  CHECK_OK(seriatim_cache_reset(cache, copied, 3, &error));
  CHECK(tokens_of(cache, copied) == 0);
  feed(cache, copied, 2, 3, 40);
  check_holds(cache, copied, 2, 3, 40, geometry, engine);
  CHECK_OK(seriatim_cache_remove(cache, forked, &error));
  CHECK_FAILS(seriatim_cache_truncate(cache, forked, 1, &error), SERIATIM_NOT_FOUND, "sequence");
  CHECK_OK(seriatim_cache_remove(cache, copied, &error));
}

static void a_snapshot_stays_what_it_was(seriatim_cache* cache, int64_t sequence, seriatim_engine* engine) {
  seriatim_snapshot* before = NULL;
  seriatim_snapshot* shared = NULL;
  seriatim_layer read;
  seriatim_token token;
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &before, &error));
  CHECK_OK(seriatim_snapshot_copy(before, &shared, &error));
  seriatim_snapshot_destroy(before);
  ask(cache, sequence, 1, 0, 7, kFirst, engine, &wanted);
  CHECK_OK(seriatim_cache_truncate(cache, sequence, 5, &error));
  read = layer_of_snapshot(shared, 0);
  CHECK_OK(answer_batch(&read, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kFirst));
  CHECK_OK(seriatim_layer_token(&read, 7 + 33, 1, &token, &error));
  CHECK(memcmp(token.key, tokens.keys + (33 * kKvHeads + 1) * kDim, kDim * sizeof(float)) == 0);
  CHECK(memcmp(token.value, tokens.values + (33 * kKvHeads + 1) * kDim, kDim * sizeof(float)) == 0);
  CHECK(memcmp(token.raw_index_key, tokens.index_keys + 33 * kIndexDim, kIndexDim * sizeof(float)) == 0);
  CHECK(token.coordinates[0] == 7 + 33 && token.coordinates[2] == 7 + 33);
  CHECK_FAILS(seriatim_layer_token(&read, 6, 0, &token, &error), SERIATIM_INVALID_ARGUMENT, "position");
  CHECK_FAILS(seriatim_layer_token(&read, 7, kKvHeads, &token, &error), SERIATIM_INVALID_ARGUMENT, "kv_head");
  seriatim_snapshot_destroy(shared);
  feed(cache, sequence, 1, 7 + 5, kFirst - 5);
}

static void saved_and_restored(seriatim_cache* cache, int64_t sequence, const char* path,
                               const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_cache_file_info info;
  seriatim_saved_sequence saved[2];
  seriatim_geometry* file_geometry = NULL;
  seriatim_geometry_options options;
  int32_t mode;
  int64_t second = -1;
  CHECK_OK(seriatim_cache_add(cache, 0, &second, &error));
  feed(cache, second, 2, 0, 70);
  CHECK_OK(seriatim_cache_save(cache, path, NULL, -1, &error));
  seriatim_cache_file_info_init(&info);
  CHECK_OK(seriatim_cache_file_read(path, &info, saved, 2, &file_geometry, &error));
  CHECK(info.sequences == 2 && info.layers == kLayers && info.file_bytes > 0 && info.mappable == 1);
  CHECK(saved[0].id == sequence && saved[0].anchor == 7 && saved[0].tokens == kFirst);
  CHECK(saved[1].id == second && saved[1].anchor == 0 && saved[1].tokens == 70);
  seriatim_geometry_options_init(&options);
  CHECK_OK(seriatim_geometry_get(file_geometry, &options, &error));
  CHECK(options.group_tokens == kGroup && options.kv_heads == kKvHeads && options.head_dim == kDim);
  seriatim_geometry_destroy(file_geometry);
  CHECK_OK(seriatim_cache_file_verify(path, &error));

  for (mode = SERIATIM_RESTORE_COPY; mode <= SERIATIM_RESTORE_MAP_VERIFIED; ++mode) {
    seriatim_cache* other = new_cache(geometry);
    seriatim_restored pairs[3];
    seriatim_cache_bytes bytes;
    int64_t count = 77;
    CHECK_FAILS(seriatim_cache_restore(other, path, mode, pairs, 1, &count, &error), SERIATIM_CAPACITY, "pairs");
    CHECK(count == 77);
    CHECK_FAILS(seriatim_cache_truncate(other, 0, 0, &error), SERIATIM_NOT_FOUND, "sequence");
    CHECK_OK(seriatim_cache_restore(other, path, mode, pairs, 3, &count, &error));
    CHECK(count == 2 && pairs[0].saved == sequence && pairs[1].saved == second);
    check_holds(other, pairs[0].id, 1, 7, kFirst, geometry, engine);
    check_holds(other, pairs[1].id, 2, 0, 70, geometry, engine);
    seriatim_cache_bytes_init(&bytes);
    CHECK_OK(seriatim_cache_get_bytes(other, &bytes, &error));
    CHECK((bytes.mapped > 0) == (mode != SERIATIM_RESTORE_COPY));
    seriatim_cache_destroy(other);
  }
  CHECK_OK(seriatim_cache_save(cache, path, &second, 1, &error));
  CHECK_OK(seriatim_cache_file_read(path, &info, saved, 0, NULL, &error));
  CHECK(info.sequences == 1);
  CHECK(remove(path) == 0);
}

static void bytes_are_told_and_given_back(seriatim_cache* cache, int64_t sequence) {
  seriatim_cache_bytes bytes;
  seriatim_cache_bytes_init(&bytes);
  CHECK_OK(seriatim_cache_get_bytes(cache, &bytes, &error));
  CHECK(bytes.keys_values > 0 && bytes.raw_index_keys > 0 && bytes.pooled_keys > 0 && bytes.tables > 0);
  CHECK(bytes.coordinates == 0);
  CHECK_OK(seriatim_cache_reset(cache, sequence, 0, &error));
  CHECK_OK(seriatim_cache_trim(cache, &error));
  CHECK_OK(seriatim_cache_get_bytes(cache, &bytes, &error));
  CHECK(bytes.free_pages == 0);
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "capi_life_test.cache";
  seriatim_geometry* geometry;
  seriatim_cache* cache;
  seriatim_engine* engine;
  seriatim_snapshot* last = NULL;
  seriatim_layer read;
  int64_t sequence = -1;
  seriatim_error_init(&error);
  geometry = model_geometry();
  cache = new_cache(geometry);
  engine = model_engine();
  CHECK_OK(seriatim_cache_add(cache, 7, &sequence, &error));
  staged_and_published_answers_are_the_same(cache, sequence, geometry, engine);
  below_the_budget_it_is_dense(geometry);
  transactions_end_in_every_way(cache, sequence, geometry, engine);
  forks_and_cuts(cache, sequence, geometry, engine);
  a_snapshot_stays_what_it_was(cache, sequence, engine);
  saved_and_restored(cache, sequence, path, geometry, engine);

  // Handles go in any order: the snapshot reads on when cache and geometry are gone.
  ask(cache, sequence, 1, 1, 7, kFirst, engine, &wanted);
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &last, &error));
  bytes_are_told_and_given_back(cache, sequence);
  seriatim_cache_destroy(cache);
  seriatim_geometry_destroy(geometry);
  read = layer_of_snapshot(last, 1);
  fill_batch(&tokens, 1, 1, 7, kFirst);
  CHECK_OK(answer_batch(&read, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kFirst));
  seriatim_engine_destroy(engine);
  seriatim_snapshot_destroy(last);
  return checks_end();
}
