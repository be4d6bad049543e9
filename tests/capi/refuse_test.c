// Every kind of error, by name and place; NULL for everything that is needed; structs
// of other versions. After each refusal what was there is as it was.
#include <math.h>

#include "check.h"
#include "model.h"

static seriatim_error error;
static batch tokens;
static answer got;
static answer before;

typedef struct setup {
  seriatim_geometry* geometry;
  seriatim_cache* cache;
  seriatim_engine* engine;
  int64_t sequence;
} setup;

static setup make_setup(void) {
  setup s;
  seriatim_cache_options options;
  seriatim_transaction* step = NULL;
  memset(&s, 0, sizeof s);
  s.geometry = model_geometry();
  seriatim_cache_options_init(&options);
  options.capacity_tokens = 512;
  CHECK_OK(seriatim_cache_create(s.geometry, &options, &s.cache, &error));
  s.engine = model_engine();
  CHECK_OK(seriatim_cache_add(s.cache, 0, &s.sequence, &error));
  CHECK_OK(seriatim_cache_begin(s.cache, &step, &error));
  fill_batch(&tokens, 1, 0, 0, 100);
  CHECK_OK(append_batch(step, s.sequence, 0, &tokens, &error));
  CHECK_OK(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
  return s;
}

static void end_setup(setup* s) {
  seriatim_engine_destroy(s->engine);
  seriatim_cache_destroy(s->cache);
  seriatim_geometry_destroy(s->geometry);
}

static void nothing_that_is_needed_may_be_null(const setup* s) {
  seriatim_geometry* geometry = NULL;
  seriatim_geometry_options options;
  seriatim_row_shape shape;
  seriatim_cache* cache = NULL;
  seriatim_cache_options cache_options;
  int64_t number = 0;
  const float one = 1.0f;
  int32_t scratch[1];
  seriatim_geometry_options_init(&options);
  seriatim_cache_options_init(&cache_options);
  seriatim_geometry_options_init(NULL);
  seriatim_cache_options_init(NULL);
  seriatim_error_init(NULL);
  CHECK_FAILS(seriatim_geometry_create(NULL, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "options");
  CHECK_FAILS(seriatim_geometry_create(&options, NULL, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_geometry_get(s->geometry, NULL, &error), SERIATIM_INVALID_ARGUMENT, "options");
  CHECK_FAILS(seriatim_geometry_get(NULL, &options, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_geometry_row_shape(NULL, 1, &shape, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_geometry_row_shape(s->geometry, 1, NULL, &error), SERIATIM_INVALID_ARGUMENT, "shape");
  CHECK_FAILS(seriatim_kernels_chosen(NULL, &error), SERIATIM_INVALID_ARGUMENT, "name");
  CHECK_FAILS(seriatim_tensor_dense(NULL, SERIATIM_F32, 1, &number, NULL, &error), SERIATIM_INVALID_ARGUMENT, "tensor");
  CHECK_FAILS(seriatim_executor_create(0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "executor");
  CHECK_FAILS(seriatim_select(NULL, 1, 1, 0, scratch, 1, scratch, 1, NULL, -1, &number, &error),
              SERIATIM_INVALID_ARGUMENT, "scores");
  CHECK_FAILS(seriatim_select(&one, 1, 1, 0, scratch, 1, NULL, 1, NULL, -1, &number, &error), SERIATIM_INVALID_ARGUMENT,
              "chosen");
  CHECK_FAILS(seriatim_select(&one, 1, 1, 0, NULL, 1, scratch, 1, NULL, -1, &number, &error), SERIATIM_INVALID_ARGUMENT,
              "scratch");
  CHECK_FAILS(seriatim_select(&one, 1, 1, 0, scratch, 1, scratch, 1, NULL, -1, NULL, &error), SERIATIM_INVALID_ARGUMENT,
              "count");
  CHECK_FAILS(seriatim_select(&one, -1, 1, 0, scratch, 1, scratch, 1, NULL, -1, &number, &error),
              SERIATIM_INVALID_ARGUMENT, "scores");
  CHECK_FAILS(seriatim_check_row(NULL, 0, 1, scratch, 1, 1, -1, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_cache_create(NULL, &cache_options, &cache, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_cache_create(s->geometry, NULL, &cache, &error), SERIATIM_INVALID_ARGUMENT, "options");
  CHECK_FAILS(seriatim_cache_add(NULL, 0, &number, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_add(s->cache, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "sequence");
  CHECK_FAILS(seriatim_cache_remove(NULL, 0, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_reset(NULL, 0, 0, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_truncate(NULL, 0, 0, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_evict_prefix(NULL, 0, 0, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_fork(s->cache, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "forked");
  CHECK_FAILS(seriatim_cache_copy(NULL, 0, 0, 0, 0, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_save(s->cache, NULL, NULL, -1, &error), SERIATIM_INVALID_ARGUMENT, "path");
  CHECK_FAILS(seriatim_cache_save(s->cache, "x", NULL, 2, &error), SERIATIM_INVALID_ARGUMENT, "sequences");
  CHECK_FAILS(seriatim_cache_restore(s->cache, "x", 0, NULL, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "count");
  CHECK_FAILS(seriatim_cache_get_bytes(s->cache, NULL, &error), SERIATIM_INVALID_ARGUMENT, "bytes");
  CHECK_FAILS(seriatim_cache_trim(NULL, &error), SERIATIM_INVALID_ARGUMENT, "cache");
  CHECK_FAILS(seriatim_cache_snapshot(s->cache, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "snapshot");
  CHECK_FAILS(seriatim_cache_begin(s->cache, NULL, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  CHECK_FAILS(seriatim_snapshot_copy(NULL, NULL, &error), SERIATIM_INVALID_ARGUMENT, "snapshot");
  CHECK_FAILS(seriatim_snapshot_check(NULL, &error), SERIATIM_INVALID_ARGUMENT, "snapshot");
  CHECK_FAILS(seriatim_transaction_append(NULL, 0, 0, 0, NULL, NULL, NULL, NULL, &error), SERIATIM_INVALID_ARGUMENT,
              "transaction");
  CHECK_FAILS(seriatim_transaction_keep(NULL, 0, 0, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  CHECK_FAILS(seriatim_transaction_commit(NULL, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  CHECK_FAILS(seriatim_transaction_commit_prefix(NULL, 0, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  CHECK_FAILS(seriatim_transaction_rollback(NULL, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  CHECK_FAILS(seriatim_layer_run(NULL, &number, &number, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  CHECK_FAILS(seriatim_cache_file_read(NULL, NULL, NULL, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "path");
  CHECK_FAILS(seriatim_cache_file_verify(NULL, &error), SERIATIM_INVALID_ARGUMENT, "path");
  CHECK(geometry == NULL && cache == NULL);
  // The error itself may be absent, and so may handles that are to be destroyed.
  CHECK(seriatim_cache_trim(NULL, NULL) == SERIATIM_INVALID_ARGUMENT);
  seriatim_geometry_destroy(NULL);
  seriatim_cache_destroy(NULL);
  seriatim_transaction_destroy(NULL);
  seriatim_snapshot_destroy(NULL);
  seriatim_engine_destroy(NULL);
  seriatim_executor_destroy(NULL);
  seriatim_allocator_destroy(NULL);
}

static void structs_of_other_versions(void) {
  struct newer {
    seriatim_geometry_options known;
    int64_t unknown[2];
  } newer;
  struct older {  // the options' first three fields
    size_t struct_size;
    int64_t group_tokens;
    int64_t budget_tokens;
  } older;
  struct newer_work {
    seriatim_work known;
    int64_t unknown;
  } work;
  seriatim_geometry_options got_options;
  seriatim_geometry* geometry = NULL;
  memset(&newer, 0, sizeof newer);
  seriatim_geometry_options_init(&newer.known);
  newer.known.struct_size = sizeof newer;
  CHECK_OK(seriatim_geometry_create(&newer.known, &geometry, &error));
  seriatim_geometry_destroy(geometry);
  geometry = NULL;
  newer.unknown[1] = 1;
  CHECK_FAILS(seriatim_geometry_create(&newer.known, &geometry, &error), SERIATIM_UNSUPPORTED, "options");
  CHECK(geometry == NULL && error.index >= (int64_t)(sizeof newer.known + 8));

  older.struct_size = sizeof older;
  older.group_tokens = 2;
  older.budget_tokens = 64;
  CHECK_OK(seriatim_geometry_create((const seriatim_geometry_options*)(const void*)&older, &geometry, &error));
  seriatim_geometry_options_init(&got_options);
  CHECK_OK(seriatim_geometry_get(geometry, &got_options, &error));
  CHECK(got_options.group_tokens == 2 && got_options.budget_tokens == 64 && got_options.head_dim == 256 &&
        got_options.relu == 1);
  older.group_tokens = 0;
  CHECK_OK(seriatim_geometry_get(geometry, (seriatim_geometry_options*)(void*)&older, &error));
  CHECK(older.struct_size == sizeof older && older.group_tokens == 2 && older.budget_tokens == 64);

  got_options.struct_size = 0;
  CHECK_FAILS(seriatim_geometry_get(geometry, &got_options, &error), SERIATIM_INVALID_ARGUMENT, "options");
  got_options.struct_size = (size_t)-1;
  CHECK_FAILS(seriatim_geometry_create(&got_options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "options");
  got_options.struct_size = 17;
  CHECK_FAILS(seriatim_geometry_create(&got_options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "options");
  {
    seriatim_engine* engine = model_engine();
    memset(&work, 0xff, sizeof work);
    work.known.struct_size = sizeof work;
    CHECK_OK(seriatim_engine_work(engine, &work.known, &error));
    CHECK(work.known.struct_size == sizeof work && work.known.queries == 0 && work.unknown == 0);
    seriatim_engine_destroy(engine);
  }
  seriatim_geometry_destroy(geometry);
}

static void errors_of_other_versions(void) {
  struct newer {
    seriatim_error known;
    int64_t unknown;
  } newer;
  struct older {
    size_t struct_size;
    int32_t code;
    int32_t reserved;
    int64_t ask;
    int64_t row;
    int64_t index;
    char behind[8];
  } older;
  seriatim_error unset;
  memset(&newer, 0x5a, sizeof newer);
  newer.known.struct_size = sizeof newer;
  CHECK(seriatim_cache_trim(NULL, &newer.known) == SERIATIM_INVALID_ARGUMENT);
  CHECK(newer.known.code == SERIATIM_INVALID_ARGUMENT && strcmp(newer.known.argument, "cache") == 0);
  CHECK(newer.known.struct_size == sizeof newer && newer.unknown == 0x5a5a5a5a5a5a5a5a);
  memset(&older, 0x5a, sizeof older);
  older.struct_size = 40;
  CHECK(seriatim_cache_trim(NULL, (seriatim_error*)(void*)&older) == SERIATIM_INVALID_ARGUMENT);
  CHECK(older.code == SERIATIM_INVALID_ARGUMENT && older.ask == -1 && older.row == -1 && older.index == -1 &&
        older.behind[0] == 0x5a);
  memset(&unset, 0, sizeof unset);
  CHECK(seriatim_cache_trim(NULL, &unset) == SERIATIM_INVALID_ARGUMENT);
  CHECK(unset.code == 0 && unset.argument[0] == '\0');
}

static void numbers_that_do_not_fit(const setup* s) {
  seriatim_geometry* geometry = NULL;
  seriatim_geometry_options options;
  seriatim_cache* cache = NULL;
  seriatim_cache_options cache_options;
  seriatim_layer_options layers[2];
  seriatim_tensor tensor;
  seriatim_executor* executor = NULL;
  int64_t shape[4] = {1, -1, 1, 1};
  float weight[kIndexDim] = {0};
  seriatim_geometry_options_init(&options);
  options.budget_tokens = 2047;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "budget_tokens");
  seriatim_geometry_options_init(&options);
  options.relu = 2;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "relu");
  seriatim_geometry_options_init(&options);
  options.pooling = -1;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "pooling");
  seriatim_geometry_options_init(&options);
  options.kv_dtype = 256;  // 0 in eight bits
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "kv_dtype");
  seriatim_geometry_options_init(&options);
  options.inv_freq_count = INT64_MAX;
  CHECK_FAILS(seriatim_geometry_create(&options, &geometry, &error), SERIATIM_INVALID_ARGUMENT, "inv_freq");
  CHECK(geometry == NULL);
  CHECK_FAILS(seriatim_tensor_dense(weight, 5, 1, shape, &tensor, &error), SERIATIM_INVALID_ARGUMENT, "dtype");
  CHECK_FAILS(seriatim_tensor_dense(weight, SERIATIM_F32, 5, shape, &tensor, &error), SERIATIM_INVALID_ARGUMENT,
              "rank");
  CHECK_FAILS(seriatim_tensor_dense(weight, SERIATIM_F32, 2, shape, &tensor, &error), SERIATIM_INVALID_ARGUMENT,
              "shape");
  CHECK(error.index == 1);
  shape[1] = INT64_MAX;
  CHECK_FAILS(seriatim_tensor_dense(weight, SERIATIM_F32, 2, shape, &tensor, &error), SERIATIM_OVERFLOW, "shape");
  CHECK_FAILS(seriatim_executor_create(-1, &executor, &error), SERIATIM_INVALID_ARGUMENT, "threads");
  seriatim_cache_options_init(&cache_options);
  cache_options.layer_count = INT64_MAX;
  CHECK_FAILS(seriatim_cache_create(s->geometry, &cache_options, &cache, &error), SERIATIM_INVALID_ARGUMENT,
              "layer_count");
  seriatim_cache_options_init(&cache_options);
  cache_options.kernels = "none";
  CHECK_FAILS(seriatim_cache_create(s->geometry, &cache_options, &cache, &error), SERIATIM_NOT_FOUND, "kernels");
  seriatim_cache_options_init(&cache_options);
  cache_options.index_only = 2;
  CHECK_FAILS(seriatim_cache_create(s->geometry, &cache_options, &cache, &error), SERIATIM_INVALID_ARGUMENT,
              "index_only");
  seriatim_cache_options_init(&cache_options);
  memset(layers, 0, sizeof layers);
  layers[0].indexed = layers[1].indexed = 1;
  layers[0].reserved = 1;
  cache_options.layers = layers;
  CHECK_FAILS(seriatim_cache_create(s->geometry, &cache_options, &cache, &error), SERIATIM_UNSUPPORTED, "layers");
  layers[0].reserved = 0;
  layers[1].index_norm_weight = weight;
  layers[1].index_norm_weight_count = kIndexDim;
  weight[3] = INFINITY;
  cache_options.layers = layers;
  cache_options.layer_count = 2;
  CHECK_FAILS(seriatim_cache_create(s->geometry, &cache_options, &cache, &error), SERIATIM_NOT_FINITE,
              "index_norm_weight");
  CHECK(error.row == 1 && error.index == 3 && cache == NULL);
}

static void appends_that_are_refused(const setup* s) {
  seriatim_transaction* step = NULL;
  seriatim_transaction* second = NULL;
  CHECK_OK(seriatim_cache_begin(s->cache, &step, &error));
  CHECK_FAILS(seriatim_cache_begin(s->cache, &second, &error), SERIATIM_INVALID_ARGUMENT, "transaction");
  fill_batch(&tokens, 1, 0, 100, 10);
  CHECK_FAILS(append_batch(step, 99, 0, &tokens, &error), SERIATIM_NOT_FOUND, "sequence");
  CHECK_FAILS(append_batch(step, s->sequence, 1, &tokens, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  tokens.positions[0] = 101;
  CHECK_FAILS(append_batch(step, s->sequence, 0, &tokens, &error), SERIATIM_NOT_CONTIGUOUS, "first_position");
  CHECK(error.row == s->sequence && error.index == 100);
  tokens.positions[0] = 100;
  tokens.keys[3 * kKvHeads * kDim + 5] = NAN;
  CHECK_FAILS(append_batch(step, s->sequence, 0, &tokens, &error), SERIATIM_NOT_FINITE, "keys");
  CHECK(error.row == 3 && error.index == 5);
  CHECK_FAILS(seriatim_transaction_append(step, s->sequence, 0, 100, NULL, NULL, NULL, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "keys");
  fill_batch(&tokens, 1, 0, 100, 440);
  CHECK_FAILS(append_batch(step, s->sequence, 0, &tokens, &error), SERIATIM_CAPACITY, "capacity");
  CHECK_FAILS(seriatim_transaction_keep(step, s->sequence, -1, &error), SERIATIM_INVALID_ARGUMENT, "tokens");
  fill_batch(&tokens, 1, 0, 100, 1);
  CHECK_OK(append_batch(step, s->sequence, 0, &tokens, &error));
  CHECK_FAILS(seriatim_cache_truncate(s->cache, s->sequence, 1, &error), SERIATIM_INVALID_ARGUMENT, "sequence");
  seriatim_transaction_destroy(step);
  CHECK_FAILS(seriatim_cache_truncate(s->cache, s->sequence, 101, &error), SERIATIM_INVALID_ARGUMENT, "tokens");
}

static void queries_that_are_refused(const setup* s) {
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  seriatim_layer bad;
  int64_t number = 0;
  CHECK_OK(seriatim_cache_snapshot(s->cache, s->sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  fill_batch(&tokens, 1, 0, 0, 100);
  CHECK_OK(answer_batch(&layer, &tokens, s->engine, &before, &error));
  bad = layer;
  bad.layer = 1;
  CHECK_FAILS(answer_batch(&bad, &tokens, s->engine, &got, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  bad.snapshot = NULL;
  CHECK_FAILS(seriatim_layer_run(&bad, &number, &number, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  tokens.positions[4] = 100;
  CHECK_FAILS(answer_batch(&layer, &tokens, s->engine, &got, &error), SERIATIM_INVALID_ARGUMENT, "positions");
  CHECK(error.row == 4 && got.rows[0] == 0x5a5a5a5a && got.counts[0] == 0x5a5a5a5a);
  tokens.positions[4] = 4;
  tokens.queries[7 * kHeads * kDim] = INFINITY;
  CHECK_FAILS(answer_batch(&layer, &tokens, s->engine, &got, &error), SERIATIM_NOT_FINITE, "queries");
  CHECK(error.row == 7);
  tokens.queries[7 * kHeads * kDim] = 3e38f;
  tokens.queries[7 * kHeads * kDim + 1] = 3e38f;
  tokens.queries[7 * kHeads * kDim + 2] = 3e38f;
  tokens.queries[7 * kHeads * kDim + 3] = -3e38f;
  CHECK_FAILS(answer_batch(&layer, &tokens, s->engine, &got, &error), SERIATIM_OVERFLOW, "output");
  CHECK(error.row == 7 && error.index == 0 && isnan(got.lse[7 * kHeads]));
  CHECK(memcmp(got.output, before.output, 7 * kHeads * kDim * sizeof(float)) == 0);
  CHECK(memcmp(got.output + 8 * kHeads * kDim, before.output + 8 * kHeads * kDim, 92 * kHeads * kDim * sizeof(float)) ==
        0);
  seriatim_snapshot_destroy(snapshot);
}

// Turns every bit of one byte in the middle, where pages lie.
static int damage(const char* path) {
  FILE* file = fopen(path, "r+b");
  long middle;
  int byte;
  int done = 0;
  if (file == NULL || fseek(file, 0, SEEK_END) != 0) return 0;
  middle = ftell(file) / 2;
  if (fseek(file, middle, SEEK_SET) == 0 && (byte = fgetc(file)) != EOF && fseek(file, middle, SEEK_SET) == 0) {
    done = fputc(byte ^ 0xff, file) != EOF;
  }
  return fclose(file) == 0 && done;
}

static void files_that_are_refused(const setup* s, const char* path) {
  seriatim_cache_file_info info;
  seriatim_restored pairs[1];
  int64_t count = -1;
  static const char cut[] = "\x40\0\0\0\0\0\0\0no cache";  // a header of 64 bytes, of which 8 are there
  FILE* file;
  seriatim_cache_file_info_init(&info);
  remove(path);  // what a run that was ended may have left
  CHECK_FAILS(seriatim_cache_restore(s->cache, path, 3, pairs, 1, &count, &error), SERIATIM_INVALID_ARGUMENT, "mode");
  CHECK(seriatim_cache_restore(s->cache, path, SERIATIM_RESTORE_COPY, pairs, 1, &count, &error) == SERIATIM_IO);
  CHECK(error.code == SERIATIM_IO);
  CHECK_OK(seriatim_cache_save(s->cache, path, NULL, -1, &error));
  CHECK(damage(path));
  CHECK_OK(seriatim_cache_file_read(path, &info, NULL, 0, NULL, &error));
  CHECK(seriatim_cache_file_verify(path, &error) == SERIATIM_CORRUPT && error.argument[0] != '\0');
  CHECK(seriatim_cache_restore(s->cache, path, SERIATIM_RESTORE_COPY, pairs, 1, &count, &error) == SERIATIM_CORRUPT);
  CHECK(count == -1);
  file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(cut, 1, 16, file) == 16 && fclose(file) == 0);
  CHECK(seriatim_cache_file_read(path, &info, NULL, 0, NULL, &error) == SERIATIM_CORRUPT);
  CHECK(remove(path) == 0);
}

int main(int argc, char** argv) {
  setup s;
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  seriatim_error_init(&error);
  s = make_setup();
  nothing_that_is_needed_may_be_null(&s);
  structs_of_other_versions();
  errors_of_other_versions();
  numbers_that_do_not_fit(&s);
  appends_that_are_refused(&s);
  queries_that_are_refused(&s);
  files_that_are_refused(&s, argc > 1 ? argv[1] : "capi_refuse_test.cache");
  // After all that the sequence answers as before.
  CHECK_OK(seriatim_cache_snapshot(s.cache, s.sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  fill_batch(&tokens, 1, 0, 0, 100);
  CHECK_OK(answer_batch(&layer, &tokens, s.engine, &got, &error));
  CHECK(same_answer(&got, &before, 100));
  seriatim_snapshot_destroy(snapshot);
  end_setup(&s);
  return checks_end();
}
