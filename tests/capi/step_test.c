// Many sequences in one call: the bits of each ask are those it has alone. Every refusal names the ask and changes
// nothing.
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kUsers = 5, kMostQueries = 128 };

// Where each user is and how many queries it brings: decode, a chunk of a prompt, speculative tokens, a dense row.
static const int64_t kTokensOf[kUsers] = {300, 111, 64, 20, 500};
static const int64_t kQueriesOf[kUsers] = {1, 64, 4, 20, 1};

static seriatim_error error;
static batch tokens;
static answer got;
static answer before;

typedef struct users {
  seriatim_geometry* geometry;
  seriatim_cache* cache;
  seriatim_engine* engine;
  seriatim_snapshot* snapshots[kUsers];
  batch* asked[kUsers];
  seriatim_plan_ask plans[kUsers];
  seriatim_attend_ask attends[kUsers];
  int64_t queries;
} users;

static seriatim_snapshot* feed(seriatim_cache* cache, int64_t user) {
  seriatim_transaction* step = NULL;
  seriatim_snapshot* snapshot = NULL;
  int64_t sequence = -1;
  CHECK_OK(seriatim_cache_add(cache, 10 * user, &sequence, &error));
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  fill_batch(&tokens, user, 0, 10 * user, kTokensOf[user]);
  CHECK_OK(append_batch(step, sequence, 0, &tokens, &error));
  CHECK_OK(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
  CHECK_OK(seriatim_cache_snapshot(cache, sequence, &snapshot, &error));
  return snapshot;
}

static users make_users(void) {
  users all;
  seriatim_cache_options options;
  int64_t u;
  memset(&all, 0, sizeof all);
  all.geometry = model_geometry();
  all.engine = model_engine();
  seriatim_cache_options_init(&options);
  options.capacity_tokens = 8192;
  CHECK_OK(seriatim_cache_create(all.geometry, &options, &all.cache, &error));
  for (u = 0; u < kUsers; ++u) {
    seriatim_layer layer;
    all.snapshots[u] = feed(all.cache, u);
    all.asked[u] = malloc(sizeof *all.asked[u]);
    fill_batch(all.asked[u], u, 0, 10 * u + kTokensOf[u] - kQueriesOf[u], kQueriesOf[u]);
    layer = layer_of_snapshot(all.snapshots[u], 0);
    all.plans[u] = plan_of(&layer, all.asked[u]);
    all.attends[u] = attend_of(&layer, all.asked[u]);
    all.queries += kQueriesOf[u];
  }
  CHECK(all.queries <= kMostQueries);
  return all;
}

static void end_users(users* all) {
  int64_t u;
  for (u = 0; u < kUsers; ++u) {
    seriatim_snapshot_destroy(all->snapshots[u]);
    free(all->asked[u]);
  }
  seriatim_engine_destroy(all->engine);
  seriatim_cache_destroy(all->cache);
  seriatim_geometry_destroy(all->geometry);
}

static seriatim_status plan_all(const users* all, answer* result) {
  const seriatim_rows rows = {result->rows, kCapacity, result->counts};
  return seriatim_plan(all->engine, all->plans, kUsers, SERIATIM_NAN_REFUSE, &rows, &error);
}

static seriatim_status attend_all(const users* all, answer* result) {
  const seriatim_const_rows rows = {result->rows, kCapacity, result->counts};
  const seriatim_tensor output = model_tensor(result->output, 3, all->queries, kHeads, kDim);
  const seriatim_tensor lse = model_tensor(result->lse, 2, all->queries, kHeads, 0);
  return seriatim_attend(all->engine, all->attends, kUsers, &rows, &output, &lse, &error);
}

static void answer_all(const users* all, answer* result) {
  memset(result, 0x5a, sizeof *result);
  CHECK_OK(plan_all(all, result));
  CHECK_OK(attend_all(all, result));
}

static void each_ask_has_the_bits_it_has_alone(const users* all) {
  static answer alone;
  static answer part;
  int64_t first = 0;
  int64_t u;
  seriatim_work work;
  CHECK_OK(seriatim_engine_clear_work(all->engine, &error));
  answer_all(all, &before);
  seriatim_work_init(&work);
  CHECK_OK(seriatim_engine_work(all->engine, &work, &error));
  CHECK(work.queries == all->queries && work.dense_rows >= 20 && work.dense_rows < work.queries);
  for (u = 0; u < kUsers; ++u) {
    const int64_t count = kQueriesOf[u];
    const size_t n = (size_t)count;
    CHECK_OK(answer_batch(&all->plans[u].layer, all->asked[u], all->engine, &alone, &error));
    memset(&part, 0x5a, sizeof part);
    memcpy(part.rows, before.rows + first * kCapacity, n * kCapacity * sizeof *part.rows);
    memcpy(part.counts, before.counts + first, n * sizeof *part.counts);
    memcpy(part.output, before.output + first * kHeads * kDim, n * kHeads * kDim * sizeof *part.output);
    memcpy(part.lse, before.lse + first * kHeads, n * kHeads * sizeof *part.lse);
    CHECK(same_answer(&part, &alone, count));
    first += count;
  }
  CHECK(before.counts[all->queries] == 0x5a5a5a5a);
}

static void no_asks_are_no_work(const users* all) {
  const seriatim_rows rows = {got.rows, kCapacity, got.counts};
  const seriatim_const_rows planned = {got.rows, kCapacity, got.counts};
  const seriatim_tensor output = model_tensor(got.output, 3, 0, kHeads, kDim);
  memset(&got, 0x5a, sizeof got);
  CHECK_OK(seriatim_plan(all->engine, NULL, 0, SERIATIM_NAN_REFUSE, &rows, &error));
  CHECK_OK(seriatim_attend(all->engine, NULL, 0, &planned, &output, NULL, &error));
  CHECK(got.counts[0] == 0x5a5a5a5a);
}

// Plans and attends with one ask or the whole call spoilt, and back in order at the end.
#define REFUSED_PLAN(all, change, code, name, at, undo)      \
  do {                                                       \
    memset(&got, 0x5a, sizeof got);                          \
    change;                                                  \
    CHECK_FAILS(plan_all(all, &got), code, name);            \
    CHECK(error.ask == (at) && got.counts[0] == 0x5a5a5a5a); \
    undo;                                                    \
  } while (0)
#define REFUSED_ATTEND(all, change, code, name, at, undo)      \
  do {                                                         \
    got = before;                                              \
    memset(got.output, 0x5a, sizeof got.output);               \
    change;                                                    \
    CHECK_FAILS(attend_all(all, &got), code, name);            \
    CHECK(error.ask == (at));                                  \
    CHECK(memcmp(&got.output[0], "\x5a\x5a\x5a\x5a", 4) == 0); \
    undo;                                                      \
  } while (0)

static void a_refused_plan_names_the_ask(users* all) {
  seriatim_plan_ask* ask = &all->plans[2];
  const seriatim_plan_ask right = *ask;
  seriatim_tensor weights = model_tensor(tokens.keys, 2, kQueriesOf[2], kIndexHeads, 0);
  REFUSED_PLAN(all, ask->layer.layer = 1, SERIATIM_INVALID_ARGUMENT, "layer", 2, *ask = right);
  REFUSED_PLAN(all, ask->layer.snapshot = NULL, SERIATIM_INVALID_ARGUMENT, "layer", 2, *ask = right);
  REFUSED_PLAN(all, ask->index_queries.shape[2] -= 1, SERIATIM_INVALID_ARGUMENT, "index_queries", 2, *ask = right);
  REFUSED_PLAN(all, ask->index_queries.dtype = 9, SERIATIM_INVALID_ARGUMENT, "index_queries", 2, *ask = right);
  REFUSED_PLAN(all, ask->index_queries.data = NULL, SERIATIM_INVALID_ARGUMENT, "index_queries", 2, *ask = right);
  weights.data = NULL;
  REFUSED_PLAN(all, ask->index_head_weights = &weights, SERIATIM_INVALID_ARGUMENT, "index_head_weights", 2,
               *ask = right);
  REFUSED_PLAN(all, ask->positions = NULL, SERIATIM_INVALID_ARGUMENT, "positions", 2, *ask = right);
  REFUSED_PLAN(all, ask->query_count = -1, SERIATIM_INVALID_ARGUMENT, "positions", 2, *ask = right);
  REFUSED_PLAN(all, ask->query_count -= 1, SERIATIM_INVALID_ARGUMENT, "positions", 2, *ask = right);
  REFUSED_PLAN(all, all->asked[2]->positions[3] += 1, SERIATIM_INVALID_ARGUMENT, "positions", 2,
               all->asked[2]->positions[3] -= 1);
  CHECK(error.row == 3);
  REFUSED_PLAN(all, ask->struct_size -= 8, SERIATIM_INVALID_ARGUMENT, "asks", 2, *ask = right);
  REFUSED_PLAN(all, all->plans[0].struct_size = 0, SERIATIM_INVALID_ARGUMENT, "asks", 0,
               all->plans[0].struct_size = sizeof *ask);
  answer_all(all, &got);
  CHECK(same_answer(&got, &before, all->queries));
}

static void a_refused_attend_names_the_ask(users* all) {
  seriatim_attend_ask* ask = &all->attends[1];
  const seriatim_attend_ask right = *ask;
  float* query = &all->asked[1]->queries[5 * kHeads * kDim + 3];
  const float was = *query;
  float sinks[kHeads] = {0};
  REFUSED_ATTEND(all, ask->layer.layer = -1, SERIATIM_INVALID_ARGUMENT, "layer", 1, *ask = right);
  REFUSED_ATTEND(all, ask->queries.rank = 2, SERIATIM_INVALID_ARGUMENT, "queries", 1, *ask = right);
  REFUSED_ATTEND(all, ask->queries.data = NULL, SERIATIM_INVALID_ARGUMENT, "queries", 1, *ask = right);
  REFUSED_ATTEND(all, ask->positions = NULL, SERIATIM_INVALID_ARGUMENT, "positions", 1, *ask = right);
  REFUSED_ATTEND(all, ask->sink_count = kHeads, SERIATIM_INVALID_ARGUMENT, "sinks", 1, *ask = right);
  ask->sinks = sinks;
  REFUSED_ATTEND(all, ask->sink_count = kHeads - 1, SERIATIM_INVALID_ARGUMENT, "sinks", 1, *ask = right);
  REFUSED_ATTEND(all, ask->struct_size += 8, SERIATIM_INVALID_ARGUMENT, "asks", 1, *ask = right);
  REFUSED_ATTEND(all, *query = INFINITY, SERIATIM_NOT_FINITE, "queries", 1, *query = was);
  CHECK(error.row == 5);
  // The rows of ask 1 start at query 1 of the call.
  REFUSED_ATTEND(all, got.counts[3] = kCapacity + 1, SERIATIM_INVALID_ARGUMENT, "rows", 1, (void)0);
  CHECK(error.row == 2);
  REFUSED_ATTEND(all, got.rows[3 * kCapacity + 7] = got.rows[3 * kCapacity + 6], SERIATIM_NOT_CHRONOLOGICAL, "row", 1,
                 (void)0);
  CHECK(error.row == 2 && error.index == 7);
}

static void the_call_as_a_whole_is_refused(const users* all) {
  const seriatim_rows rows = {got.rows, kCapacity, got.counts};
  const seriatim_rows narrow = {got.rows, kCapacity - 1, got.counts};
  const seriatim_rows nowhere = {NULL, kCapacity, got.counts};
  const seriatim_rows uncounted = {got.rows, kCapacity, NULL};
  const seriatim_const_rows planned = {before.rows, kCapacity, before.counts};
  const seriatim_const_rows no_rows = {NULL, kCapacity, before.counts};
  seriatim_tensor output = model_tensor(got.output, 3, all->queries, kHeads, kDim);
  seriatim_tensor lse = model_tensor(got.lse, 2, all->queries, kHeads, 0);
  seriatim_engine* engine = all->engine;
  memset(&got, 0x5a, sizeof got);
  CHECK_FAILS(seriatim_plan(NULL, all->plans, kUsers, 0, &rows, &error), SERIATIM_INVALID_ARGUMENT, "engine");
  CHECK_FAILS(seriatim_plan(engine, NULL, kUsers, 0, &rows, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  CHECK_FAILS(seriatim_plan(engine, all->plans, -1, 0, &rows, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  CHECK_FAILS(seriatim_plan(engine, all->plans, INT64_MAX, 0, &rows, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  CHECK_FAILS(seriatim_plan(engine, all->plans, kUsers, 2, &rows, &error), SERIATIM_INVALID_ARGUMENT, "nan_policy");
  CHECK_FAILS(seriatim_plan(engine, all->plans, kUsers, 0, NULL, &error), SERIATIM_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(seriatim_plan(engine, all->plans, kUsers, 0, &narrow, &error), SERIATIM_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(seriatim_plan(engine, all->plans, kUsers, 0, &nowhere, &error), SERIATIM_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(seriatim_plan(engine, all->plans, kUsers, 0, &uncounted, &error), SERIATIM_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(seriatim_attend(NULL, all->attends, kUsers, &planned, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "engine");
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, NULL, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "rows");
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &no_rows, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "rows");
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &planned, NULL, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "output");
  output.shape[0] -= 1;
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &planned, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "output");
  output.shape[0] += 1;
  output.stride_bytes[2] = -4;
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &planned, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "output");
  output.stride_bytes[2] = 4;
  output.data = NULL;
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &planned, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "output");
  output.data = got.output;
  lse.data = NULL;
  CHECK_FAILS(seriatim_attend(engine, all->attends, kUsers, &planned, &output, &lse, &error), SERIATIM_INVALID_ARGUMENT,
              "lse");
  CHECK(error.ask == -1 && got.counts[0] == 0x5a5a5a5a);
}

// An array of asks of another version: its elements lie as far apart as they say.
static void asks_of_other_versions(const users* all) {
  struct newer {
    seriatim_plan_ask known;
    int64_t unknown;
  } newer[kUsers];
  struct older {  // an attend ask without sinks
    size_t struct_size;
    seriatim_layer layer;
    seriatim_tensor queries;
    const int64_t* positions;
    int64_t query_count;
  } older[kUsers];
  const seriatim_rows rows = {got.rows, kCapacity, got.counts};
  const seriatim_const_rows planned = {before.rows, kCapacity, before.counts};
  const seriatim_tensor output = model_tensor(got.output, 3, all->queries, kHeads, kDim);
  const seriatim_tensor lse = model_tensor(got.lse, 2, all->queries, kHeads, 0);
  int64_t u;
  memset(&got, 0x5a, sizeof got);
  for (u = 0; u < kUsers; ++u) {
    newer[u].known = all->plans[u];
    newer[u].known.struct_size = sizeof newer[u];
    newer[u].unknown = 0;
    memcpy(&older[u], &all->attends[u], sizeof older[u]);
    older[u].struct_size = sizeof older[u];
  }
  newer[3].unknown = 1;
  CHECK_FAILS(seriatim_plan(all->engine, &newer[0].known, kUsers, 0, &rows, &error), SERIATIM_UNSUPPORTED, "asks");
  CHECK(error.ask == 3 && error.index >= (int64_t)sizeof newer[0].known && got.counts[0] == 0x5a5a5a5a);
  newer[3].unknown = 0;
  CHECK_OK(seriatim_plan(all->engine, &newer[0].known, kUsers, 0, &rows, &error));
  CHECK_OK(seriatim_attend(all->engine, (const seriatim_attend_ask*)(const void*)older, kUsers, &planned, &output, &lse,
                           &error));
  CHECK(same_answer(&got, &before, all->queries));
}

static void a_reserved_engine_takes_no_more(const users* all) {
  seriatim_engine* engine = model_engine();
  seriatim_step_limits limits;
  const seriatim_rows rows = {got.rows, kCapacity, got.counts};
  int64_t promised = -1, held = -1, after = -1;
  seriatim_step_limits_init(&limits);
  limits.visible_tokens = 300;
  limits.queries = all->queries;
  limits.asks = kUsers;
  CHECK_OK(seriatim_engine_bytes(engine, &held, &error));
  CHECK(held == 0);
  CHECK_OK(seriatim_engine_bytes_for(engine, all->geometry, &limits, &promised, &error));
  CHECK_OK(seriatim_engine_reserve(engine, all->geometry, &limits, &error));
  CHECK_OK(seriatim_engine_bytes(engine, &held, &error));
  CHECK(promised > 0 && held == promised);
  memset(&got, 0x5a, sizeof got);
  CHECK_OK(seriatim_plan(engine, all->plans, kUsers - 1, 0, &rows, &error));
  CHECK_FAILS(seriatim_plan(engine, all->plans + kUsers - 1, 1, 0, &rows, &error), SERIATIM_CAPACITY, error.argument);
  CHECK_OK(seriatim_engine_bytes(engine, &after, &error));
  CHECK(after == held);
  limits.visible_tokens = -1;
  CHECK(seriatim_engine_reserve(engine, all->geometry, &limits, &error) == SERIATIM_INVALID_ARGUMENT);
  CHECK(seriatim_engine_bytes_for(engine, all->geometry, &limits, &promised, &error) == SERIATIM_INVALID_ARGUMENT);
  limits.visible_tokens = 1;
  limits.asks = -1;
  CHECK(seriatim_engine_reserve(engine, all->geometry, &limits, &error) == SERIATIM_INVALID_ARGUMENT);
  CHECK_FAILS(seriatim_engine_reserve(engine, all->geometry, NULL, &error), SERIATIM_INVALID_ARGUMENT, "limits");
  CHECK_FAILS(seriatim_engine_reserve(engine, NULL, &limits, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_engine_reserve(NULL, all->geometry, &limits, &error), SERIATIM_INVALID_ARGUMENT, "engine");
  CHECK_FAILS(seriatim_engine_bytes_for(NULL, all->geometry, &limits, &held, &error), SERIATIM_INVALID_ARGUMENT,
              "engine");
  CHECK_FAILS(seriatim_engine_bytes_for(engine, all->geometry, &limits, NULL, &error), SERIATIM_INVALID_ARGUMENT,
              "bytes");
  CHECK_FAILS(seriatim_engine_bytes(engine, NULL, &error), SERIATIM_INVALID_ARGUMENT, "bytes");
  CHECK_FAILS(seriatim_engine_work(engine, NULL, &error), SERIATIM_INVALID_ARGUMENT, "work");
  CHECK_FAILS(seriatim_engine_clear_work(NULL, &error), SERIATIM_INVALID_ARGUMENT, "engine");
  seriatim_engine_destroy(engine);
}

static void engines_that_are_refused(void) {
  seriatim_engine_options options;
  seriatim_engine* engine = NULL;
  seriatim_executor* executor = NULL;
  CHECK_FAILS(seriatim_engine_create(NULL, NULL, &error), SERIATIM_INVALID_ARGUMENT, "engine");
  seriatim_engine_options_init(&options);
  options.kernels = "none";
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_NOT_FOUND, "kernels");
  seriatim_engine_options_init(&options);
  options.threads = 1025;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "threads");
  seriatim_engine_options_init(&options);
  CHECK_OK(seriatim_executor_create(1, &executor, &error));
  options.executor = executor;
  options.threads = 2;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "threads");
  seriatim_executor_destroy(executor);
  seriatim_engine_options_init(&options);
  options.work_group = 1;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "work_group");
  options.struct_size = 12;
  CHECK_FAILS(seriatim_engine_create(&options, &engine, &error), SERIATIM_INVALID_ARGUMENT, "options");
  CHECK(engine == NULL);
}

int main(void) {
  users all;
  seriatim_error_init(&error);
  all = make_users();
  each_ask_has_the_bits_it_has_alone(&all);
  no_asks_are_no_work(&all);
  a_refused_plan_names_the_ask(&all);
  a_refused_attend_names_the_ask(&all);
  the_call_as_a_whole_is_refused(&all);
  asks_of_other_versions(&all);
  a_reserved_engine_takes_no_more(&all);
  engines_that_are_refused();
  end_users(&all);
  return checks_end();
}
