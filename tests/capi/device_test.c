// An engine on a device has the bits of one on the host. Ends with 77 where there is no device to run on.
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kTokens = 200, kSkipped = 77 };

static seriatim_error error;
static batch tokens;
static answer wanted;
static answer got;

static void devices_are_listed(int64_t count) {
  struct newer {
    seriatim_device_info known;
    int64_t unknown;
  } newer;
  struct older {
    size_t struct_size;
    char name[32];
  } older;
  seriatim_device_info info;
  int64_t i;
  for (i = 0; i < count; ++i) {
    seriatim_device_info_init(&info);
    CHECK_OK(seriatim_device_get(i, &info, &error));
    CHECK(info.name[0] != '\0' && info.product[0] != '\0' && info.memory_bytes > 0 && info.largest_buffer_bytes > 0);
  }
  memset(&newer, 0xff, sizeof newer);
  newer.known.struct_size = sizeof newer;
  CHECK_OK(seriatim_device_get(0, &newer.known, &error));
  CHECK(newer.unknown == 0 && newer.known.memory_bytes > 0);
  older.struct_size = sizeof older;
  CHECK_OK(seriatim_device_get(0, (seriatim_device_info*)(void*)&older, &error));
  CHECK(strcmp(older.name, newer.known.name) == 0);
  CHECK_FAILS(seriatim_device_get(count, &info, &error), SERIATIM_NOT_FOUND, "index");
  CHECK_FAILS(seriatim_device_get(-1, &info, &error), SERIATIM_NOT_FOUND, "index");
  CHECK_FAILS(seriatim_device_get(0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "info");
  CHECK_FAILS(seriatim_device_count(NULL, &error), SERIATIM_INVALID_ARGUMENT, "count");
}

static void engines_that_are_refused(void) {
  seriatim_engine_options options;
  seriatim_engine* engine = NULL;
  seriatim_executor* executor = NULL;
  seriatim_engine_options_init(&options);
  options.device = "no such device";
  CHECK(seriatim_engine_create(&options, &engine, &error) == SERIATIM_NOT_FOUND);
  options.device = NULL;
  options.work_group = 64;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "work_group");
  options.device = "opencl";
  options.work_group = 5000;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "work_group");
  options.work_group = 0;
  options.threads = 2;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "threads");
  options.threads = 1;
  options.kernels = "reference";
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "kernels");
  options.kernels = NULL;
  CHECK_OK(seriatim_executor_create(1, &executor, &error));
  options.executor = executor;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "executor");
  seriatim_executor_destroy(executor);
  CHECK(engine == NULL);
}

static seriatim_cache* new_cache(const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_cache_options options;
  seriatim_cache* cache = NULL;
  seriatim_cache_options_init(&options);
  if (engine != NULL) {
    options.capacity_tokens = 0;
    CHECK(seriatim_engine_allocator(engine, geometry, &options, &options.allocator, &error) ==
          SERIATIM_INVALID_ARGUMENT);
  }
  options.capacity_tokens = 1024;
  if (engine != NULL) {
    CHECK_OK(seriatim_engine_allocator(engine, geometry, &options, &options.allocator, &error));
    CHECK(options.allocator != NULL);
  }
  CHECK_OK(seriatim_cache_create(geometry, &options, &cache, &error));
  seriatim_allocator_destroy(options.allocator);  // the cache keeps it
  return cache;
}

// Every query of two chunks, staged and published.
static void answers_of(seriatim_cache* cache, seriatim_engine* engine, answer* staged_answer,
                       answer* published_answer) {
  seriatim_transaction* step = NULL;
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  int64_t sequence = -1;
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  fill_batch(&tokens, 1, 0, 0, kTokens);
  CHECK_OK(append_batch(step, sequence, 0, &tokens, &error));
  layer = layer_of_transaction(step, sequence, 0);
  CHECK_OK(answer_batch(&layer, &tokens, engine, staged_answer, &error));
  CHECK_OK(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
  CHECK_OK(seriatim_engine_let_go(engine, &error));
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  CHECK_OK(answer_batch(&layer, &tokens, engine, published_answer, &error));
  seriatim_snapshot_destroy(snapshot);
}

static void a_device_has_the_bits_of_the_host(const seriatim_geometry* geometry, const char* device) {
  static answer published;
  seriatim_engine_options options;
  seriatim_engine* host = model_engine();
  seriatim_engine* engine = NULL;
  seriatim_allocator* allocator = (seriatim_allocator*)(void*)&options;
  seriatim_cache_options cache_options;
  seriatim_cache* cache;
  seriatim_borrowed* borrowed = NULL;
  seriatim_borrowed_tensors tensors;
  const seriatim_tensor keys = model_tensor(tokens.keys, 3, kTokens, kKvHeads, kDim);
  seriatim_layer layer;
  const seriatim_const_rows rows = {got.rows, kCapacity, got.counts};
  const seriatim_tensor output = model_tensor(got.output, 3, kTokens, kHeads, kDim);
  seriatim_attend_ask ask;
  cache = new_cache(geometry, NULL);
  answers_of(cache, host, &wanted, &published);
  CHECK(same_answer(&wanted, &published, kTokens));
  seriatim_cache_destroy(cache);
  seriatim_cache_options_init(&cache_options);
  CHECK_OK(seriatim_engine_allocator(host, geometry, &cache_options, &allocator, &error));
  CHECK(allocator == NULL);

  seriatim_engine_options_init(&options);
  options.device = device;
  CHECK_OK(seriatim_engine_create(&options, &engine, &error));
  cache = new_cache(geometry, engine);
  answers_of(cache, engine, &got, &published);
  CHECK(same_answer(&got, &wanted, kTokens) && same_answer(&published, &wanted, kTokens));
  seriatim_cache_destroy(cache);

  // Memory that is not the device's.
  CHECK_OK(seriatim_borrowed_create(geometry, &borrowed, &error));
  seriatim_borrowed_tensors_init(&tensors);
  tensors.keys = tensors.values = &keys;
  CHECK_OK(seriatim_borrowed_bind(borrowed, 0, kTokens, &tensors, &error));
  memset(&layer, 0, sizeof layer);
  layer.borrowed = borrowed;
  ask = attend_of(&layer, &tokens);
  memset(got.output, 0x5a, sizeof got.output);
  CHECK(seriatim_attend(engine, &ask, 1, &rows, &output, NULL, &error) == SERIATIM_INVALID_ARGUMENT && error.ask == 0);
  CHECK(memcmp(got.output, "\x5a\x5a\x5a\x5a", 4) == 0);
  seriatim_borrowed_destroy(borrowed);
  seriatim_engine_destroy(engine);
  seriatim_engine_destroy(host);
}

int main(void) {
  seriatim_geometry* geometry;
  seriatim_device_info info;
  int64_t count = 0;
  seriatim_status status;
  seriatim_error_init(&error);
  status = seriatim_device_count(&count, &error);
  if (status == SERIATIM_UNSUPPORTED || count == 0) {
    printf("no device: %s\n", error.message);
    return getenv("SERIATIM_NEED_DEVICE") == NULL ? kSkipped : 1;
  }
  CHECK_OK(status);
  seriatim_device_info_init(NULL);
  seriatim_device_info_init(&info);
  CHECK_OK(seriatim_device_get(0, &info, &error));
  geometry = model_geometry();
  devices_are_listed(count);
  engines_that_are_refused();
  a_device_has_the_bits_of_the_host(geometry, info.name);
  seriatim_geometry_destroy(geometry);
  return checks_end();
}
