// What an engine brings of its own: threads and memory; and readers beside a writer.
#define _POSIX_C_SOURCE 200112L

#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kThreads = 3, kTokens = 300, kReaderTurns = 40 };

static seriatim_error error;
static batch tokens;
static answer wanted;
static answer got;

// ---- an executor of plain threads

typedef enum misdeed { kNone, kLeavesOneOut, kRunsOneTwice, kWrongWorker, kWrongUnit } misdeed;

typedef struct pool {
  misdeed wrong;
  int runs;
  int disposed;
} pool;

typedef struct share {
  seriatim_task task;
  void* data;
  int64_t units;
  int32_t worker;
} share;

static void* run_share(void* argument) {
  const share* mine = argument;
  int64_t unit;
  for (unit = mine->worker; unit < mine->units; unit += kThreads) mine->task(mine->data, unit, mine->worker);
  return NULL;
}

static void run_units(void* user, int64_t units, seriatim_task task, void* data) {
  pool* self = user;
  pthread_t threads[kThreads];
  share shares[kThreads];
  int32_t i;
  ++self->runs;
  if (self->wrong == kWrongWorker) task(data, 0, kThreads);
  if (self->wrong == kWrongUnit) task(data, units, 0);
  for (i = 0; i < kThreads; ++i) {
    shares[i].task = task;
    shares[i].data = data;
    shares[i].units = self->wrong == kLeavesOneOut ? units - 1 : units;
    shares[i].worker = i;
    if (pthread_create(&threads[i], NULL, run_share, &shares[i]) != 0) abort();
  }
  for (i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  if (self->wrong == kRunsOneTwice) task(data, 0, 0);
}

static void dispose_pool(void* user) { ++((pool*)user)->disposed; }

static seriatim_executor* new_executor(pool* self) {
  seriatim_executor_callbacks callbacks;
  seriatim_executor* executor = NULL;
  int32_t concurrency = 0;
  seriatim_executor_callbacks_init(&callbacks);
  callbacks.user = self;
  callbacks.run = run_units;
  callbacks.dispose = dispose_pool;
  callbacks.concurrency = kThreads;
  CHECK_OK(seriatim_executor_create_custom(&callbacks, &executor, &error));
  CHECK_OK(seriatim_executor_concurrency(executor, &concurrency, &error));
  CHECK(concurrency == kThreads);
  return executor;
}

// ---- an allocator that counts

typedef struct memory {
  int64_t held_bytes;
  int64_t calls;
  int64_t refuse_after;  // calls; -1: never
  int misaligned;
  int disposed;
} memory;

static void* take_memory(void* user, int64_t bytes) {
  memory* self = user;
  void* taken = NULL;
  if (self->refuse_after >= 0 && self->calls >= self->refuse_after) return NULL;
  ++self->calls;
  if (posix_memalign(&taken, 64, (size_t)bytes + 64) != 0) return NULL;
  self->held_bytes += bytes;
  return self->misaligned ? (char*)taken + 8 : taken;
}

static void give_memory(void* user, void* taken, int64_t bytes) {
  memory* self = user;
  self->held_bytes -= bytes;
  free(self->misaligned ? (char*)taken - 8 : taken);
}

static void dispose_memory(void* user) { ++((memory*)user)->disposed; }

static seriatim_allocator* new_allocator(memory* self) {
  seriatim_allocator_callbacks callbacks;
  seriatim_allocator* allocator = NULL;
  seriatim_allocator_callbacks_init(&callbacks);
  callbacks.user = self;
  callbacks.allocate = take_memory;
  callbacks.release = give_memory;
  callbacks.dispose = dispose_memory;
  CHECK_OK(seriatim_allocator_create(&callbacks, &allocator, &error));
  return allocator;
}

static seriatim_cache* new_cache(const seriatim_geometry* geometry, seriatim_allocator* allocator) {
  seriatim_cache_options options;
  seriatim_cache* cache = NULL;
  seriatim_cache_options_init(&options);
  options.capacity_tokens = 8192;
  options.allocator = allocator;
  CHECK_OK(seriatim_cache_create(geometry, &options, &cache, &error));
  return cache;
}

static seriatim_status feed(seriatim_cache* cache, int64_t sequence, int64_t first, int64_t count, batch* with,
                            seriatim_error* told) {
  seriatim_transaction* step = NULL;
  seriatim_status status = seriatim_cache_begin(cache, &step, told);
  if (status != SERIATIM_OK) return status;
  fill_batch(with, 1, 0, first, count);
  status = append_batch(step, sequence, 0, with, told);
  if (status == SERIATIM_OK) status = seriatim_transaction_commit(step, told);
  seriatim_transaction_destroy(step);
  return status;
}

static seriatim_engine* new_engine(seriatim_executor* executor, const char* kernels) {
  seriatim_engine_options options;
  seriatim_engine* engine = NULL;
  seriatim_engine_options_init(&options);
  options.executor = executor;
  options.kernels = kernels;
  CHECK_OK(seriatim_engine_create(&options, &engine, &error));
  return engine;
}

// ---- the tests

static void an_engines_own_threads_give_the_same_bits(const seriatim_layer* layer) {
  pool threads = {kNone, 0, 0};
  seriatim_executor* executor = new_executor(&threads);
  seriatim_executor* own = NULL;
  seriatim_engine_options options;
  seriatim_engine* engine = new_engine(executor, NULL);
  seriatim_engine* second = new_engine(executor, "reference");
  fill_batch(&tokens, 1, 0, 0, kTokens);
  seriatim_executor_destroy(executor);  // the engines keep it
  CHECK_OK(answer_batch(layer, &tokens, engine, &got, &error));
  CHECK(threads.runs > 0 && same_answer(&got, &wanted, kTokens));
  CHECK_OK(answer_batch(layer, &tokens, second, &got, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
  seriatim_engine_destroy(engine);
  CHECK(threads.disposed == 0);
  seriatim_engine_destroy(second);
  CHECK(threads.disposed == 1);

  CHECK_OK(seriatim_executor_create(2, &own, &error));
  engine = new_engine(own, NULL);
  CHECK_OK(answer_batch(layer, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
  seriatim_engine_destroy(engine);
  seriatim_executor_destroy(own);

  seriatim_engine_options_init(&options);
  options.threads = 2;
  CHECK_OK(seriatim_engine_create(&options, &engine, &error));
  CHECK_OK(answer_batch(layer, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
  seriatim_engine_destroy(engine);
}

static void screening_changes_no_bits_and_is_counted(const seriatim_layer* layer) {
  seriatim_engine_options options;
  seriatim_engine* engine = NULL;
  seriatim_work work;
  fill_batch(&tokens, 1, 0, 0, kTokens);
  seriatim_engine_options_init(&options);
  options.screening = "on";
  CHECK_OK(seriatim_engine_create(&options, &engine, &error));
  CHECK_OK(answer_batch(layer, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
  seriatim_work_init(&work);
  CHECK_OK(seriatim_engine_work(engine, &work, &error));
  CHECK(work.groups_screened > 0 && work.groups_rescored > 0 && work.groups_screened <= work.groups_scored);
  CHECK(work.index_bytes_read > 0);
  seriatim_engine_destroy(engine);
  engine = NULL;
  options.screening = "perhaps";
  CHECK(seriatim_engine_create(&options, &engine, &error) == SERIATIM_INVALID_ARGUMENT && engine == NULL);
}

// Whatever mode the process left behind: the bits are the same, and the mode is given back. The pool's threads are made
// in that mode.
static void a_callers_floating_point_mode_changes_nothing(const seriatim_layer* layer) {
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  size_t i;
  fill_batch(&tokens, 1, 0, 0, kTokens);
  for (i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
    pool threads = {kNone, 0, 0};
    seriatim_engine_options options;
    seriatim_engine* engines[2] = {NULL, NULL};
    int given_back, e;
    CHECK(fesetround(modes[i]) == 0);
    seriatim_engine_options_init(&options);
    options.threads = 2;
    CHECK_OK(seriatim_engine_create(&options, &engines[0], &error));
    options.threads = 1;
    options.executor = new_executor(&threads);
    CHECK_OK(seriatim_engine_create(&options, &engines[1], &error));
    seriatim_executor_destroy(options.executor);
    for (e = 0; e < 2; ++e) {
      CHECK_OK(answer_batch(layer, &tokens, engines[e], &got, &error));
      given_back = fegetround();
      CHECK(given_back == modes[i] && same_answer(&got, &wanted, kTokens));
      seriatim_engine_destroy(engines[e]);
    }
  }
  CHECK(fesetround(FE_TONEAREST) == 0);
}

static void a_faulty_executor_is_named(const seriatim_layer* layer) {
  static const misdeed faults[] = {kLeavesOneOut, kRunsOneTwice, kWrongWorker, kWrongUnit};
  size_t i;
  fill_batch(&tokens, 1, 0, 0, kTokens);
  for (i = 0; i < sizeof faults / sizeof faults[0]; ++i) {
    pool threads = {kNone, 0, 0};
    seriatim_executor* executor = new_executor(&threads);
    seriatim_engine* engine = new_engine(executor, NULL);
    threads.wrong = faults[i];
    CHECK_FAILS(answer_batch(layer, &tokens, engine, &got, &error), SERIATIM_INVALID_ARGUMENT, "executor");
    threads.wrong = kNone;
    CHECK_OK(answer_batch(layer, &tokens, engine, &got, &error));
    CHECK(same_answer(&got, &wanted, kTokens));
    seriatim_engine_destroy(engine);
    seriatim_executor_destroy(executor);
    CHECK(threads.disposed == 1);
  }
}

static void callbacks_that_are_refused(void) {
  seriatim_executor_callbacks run;
  seriatim_allocator_callbacks memory_calls;
  seriatim_executor* executor = NULL;
  seriatim_allocator* allocator = NULL;
  pool threads = {kNone, 0, 0};
  seriatim_executor_callbacks_init(&run);
  run.user = &threads;
  run.dispose = dispose_pool;
  CHECK_FAILS(seriatim_executor_create_custom(&run, &executor, &error), SERIATIM_INVALID_ARGUMENT, "run");
  run.run = run_units;
  run.concurrency = 0;
  CHECK_FAILS(seriatim_executor_create_custom(&run, &executor, &error), SERIATIM_INVALID_ARGUMENT, "concurrency");
  CHECK(executor == NULL && threads.disposed == 0);
  seriatim_allocator_callbacks_init(&memory_calls);
  memory_calls.release = give_memory;
  CHECK_FAILS(seriatim_allocator_create(&memory_calls, &allocator, &error), SERIATIM_INVALID_ARGUMENT, "allocate");
  CHECK_FAILS(seriatim_allocator_create_region(NULL, 64, &allocator, &error), SERIATIM_INVALID_ARGUMENT, "region");
  CHECK(allocator == NULL);
}

static void an_engines_own_memory_is_counted_and_returned(const seriatim_geometry* geometry) {
  memory counted = {0, 0, -1, 0, 0};
  seriatim_allocator* allocator = new_allocator(&counted);
  seriatim_cache* cache = new_cache(geometry, allocator);
  seriatim_snapshot* snapshot = NULL;
  seriatim_cache_bytes bytes;
  int64_t sequence = -1;
  seriatim_allocator_destroy(allocator);  // the cache keeps it
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(feed(cache, sequence, 0, kTokens, &tokens, &error));
  seriatim_cache_bytes_init(&bytes);
  CHECK_OK(seriatim_cache_get_bytes(cache, &bytes, &error));
  CHECK(counted.held_bytes > 0);
  CHECK(counted.held_bytes ==
        bytes.keys_values + bytes.raw_index_keys + bytes.pooled_keys + bytes.coordinates + bytes.free_pages);
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  seriatim_cache_destroy(cache);
  CHECK(counted.held_bytes > 0 && counted.disposed == 0);
  seriatim_snapshot_destroy(snapshot);
  CHECK(counted.held_bytes == 0 && counted.disposed == 1);
}

static void memory_that_is_refused_changes_nothing(const seriatim_geometry* geometry, int misaligned) {
  memory counted = {0, 0, 2, 0, 0};
  seriatim_allocator* allocator = new_allocator(&counted);
  seriatim_cache* cache = new_cache(geometry, allocator);
  int64_t sequence = -1;
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(feed(cache, sequence, 0, 20, &tokens, &error));
  if (misaligned) {
    CHECK_OK(seriatim_cache_remove(cache, sequence, &error));
    CHECK_OK(seriatim_cache_trim(cache, &error));
    CHECK_OK(seriatim_cache_add(cache, 20, &sequence, &error));
    counted.refuse_after = -1;
    counted.misaligned = 1;
  }
  CHECK(feed(cache, sequence, 20, 500, &tokens, &error) == SERIATIM_OUT_OF_MEMORY &&
        error.code == SERIATIM_OUT_OF_MEMORY);
  counted.refuse_after = -1;
  counted.misaligned = 0;
  CHECK_OK(feed(cache, sequence, 20, 500, &tokens, &error));
  seriatim_cache_destroy(cache);
  seriatim_allocator_destroy(allocator);
  CHECK(counted.held_bytes == 0 && counted.disposed == 1);
}

static void pages_come_from_a_region(const seriatim_geometry* geometry) {
  const int64_t region_bytes = 1 << 20;
  char* region = malloc((size_t)region_bytes);
  seriatim_allocator* allocator = NULL;
  seriatim_cache* cache;
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  seriatim_token token;
  int64_t sequence = -1;
  CHECK_OK(seriatim_allocator_create_region(region, region_bytes, &allocator, &error));
  cache = new_cache(geometry, allocator);
  seriatim_allocator_destroy(allocator);
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(feed(cache, sequence, 0, 20, &tokens, &error));
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  CHECK_OK(seriatim_layer_token(&layer, 19, 0, &token, &error));
  CHECK((const char*)token.key >= region && (const char*)token.key < region + region_bytes);
  seriatim_snapshot_destroy(snapshot);
  seriatim_cache_destroy(cache);
  free(region);
}

// ---- two readers beside a writer: `wanted` has the answers to all kTokens

typedef struct reader {
  const seriatim_cache* cache;
  int64_t sequence;
  int wrong;
  int64_t answered;
} reader;

static void* read_beside(void* argument) {
  reader* self = argument;
  batch* asked = malloc(sizeof *asked);
  answer* told = malloc(sizeof *told);
  seriatim_engine* engine = NULL;
  seriatim_error fault;
  int turn;
  seriatim_error_init(&fault);
  if (seriatim_engine_create(NULL, &engine, &fault) != SERIATIM_OK) self->wrong = 1;
  for (turn = 0; turn < kReaderTurns; ++turn) {
    seriatim_snapshot* snapshot = NULL;
    seriatim_layer layer;
    int64_t anchor = -1;
    int64_t count = 0;
    if (seriatim_cache_snapshot(self->cache, self->sequence, &snapshot, &fault) != SERIATIM_OK) self->wrong = 1;
    layer = layer_of_snapshot(snapshot, 0);
    if (seriatim_layer_run(&layer, &anchor, &count, &fault) != SERIATIM_OK) self->wrong = 1;
    fill_batch(asked, 1, 0, 0, count);
    if (count > 0) {
      if (answer_batch(&layer, asked, engine, told, &fault) != SERIATIM_OK) self->wrong = 1;
      if (!same_answer(told, &wanted, count)) self->wrong = 1;
    }
    self->answered += count;
    seriatim_snapshot_destroy(snapshot);
  }
  seriatim_engine_destroy(engine);
  free(told);
  free(asked);
  return NULL;
}

static void readers_run_beside_a_writer(const seriatim_geometry* geometry) {
  seriatim_cache* cache = new_cache(geometry, NULL);
  reader readers[2];
  pthread_t threads[2];
  int64_t sequence = -1;
  int64_t first;
  int i;
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(feed(cache, sequence, 0, 100, &tokens, &error));
  for (i = 0; i < 2; ++i) {
    readers[i].cache = cache;
    readers[i].sequence = sequence;
    readers[i].wrong = 0;
    readers[i].answered = 0;
    CHECK(pthread_create(&threads[i], NULL, read_beside, &readers[i]) == 0);
  }
  for (first = 100; first < kTokens; ++first) CHECK_OK(feed(cache, sequence, first, 1, &tokens, &error));
  CHECK_OK(seriatim_cache_truncate(cache, sequence, 50, &error));
  CHECK_OK(feed(cache, sequence, 50, 70, &tokens, &error));
  for (i = 0; i < 2; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(readers[i].wrong == 0 && readers[i].answered > 0);
  }
  seriatim_cache_destroy(cache);
}

int main(void) {
  seriatim_geometry* geometry;
  seriatim_cache* cache;
  seriatim_engine* engine = model_engine();
  seriatim_snapshot* snapshot = NULL;
  seriatim_layer layer;
  int64_t sequence = -1;
  seriatim_error_init(&error);
  geometry = model_geometry();
  cache = new_cache(geometry, NULL);
  CHECK_OK(seriatim_cache_add(cache, 0, &sequence, &error));
  CHECK_OK(feed(cache, sequence, 0, kTokens, &tokens, &error));
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  layer = layer_of_snapshot(snapshot, 0);
  CHECK_OK(answer_batch(&layer, &tokens, engine, &wanted, &error));
  an_engines_own_threads_give_the_same_bits(&layer);
  screening_changes_no_bits_and_is_counted(&layer);
  a_callers_floating_point_mode_changes_nothing(&layer);
  a_faulty_executor_is_named(&layer);
  callbacks_that_are_refused();
  an_engines_own_memory_is_counted_and_returned(geometry);
  memory_that_is_refused_changes_nothing(geometry, 0);
  memory_that_is_refused_changes_nothing(geometry, 1);
  pages_come_from_a_region(geometry);
  readers_run_beside_a_writer(geometry);
  seriatim_snapshot_destroy(snapshot);
  seriatim_engine_destroy(engine);
  seriatim_cache_destroy(cache);
  seriatim_geometry_destroy(geometry);
  return checks_end();
}
