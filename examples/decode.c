/* One layer of an engine's decode loop in C: append a token, plan its row, attend. */
#include <seriatim.h>
#include <stdio.h>

enum {
  kTokens = 200,
  kHeads = 4,
  kKvHeads = 2,
  kDim = 32,
  kIndexHeads = 4,
  kIndexDim = 128,
  kBudget = 64,
  kRow = kBudget + 3
};

/* What the model hands to the layer for one token; random here. */
typedef struct token {
  float key[kKvHeads * kDim], value[kKvHeads * kDim], index_key[kIndexDim];
  float query[kHeads * kDim], index_query[kIndexHeads * kIndexDim];
} token;

static void fill(float* values, int count, uint32_t* state) {
  int i;
  for (i = 0; i < count; ++i) {
    *state = *state * 1664525u + 1013904223u;
    values[i] = (float)(*state >> 8) / (float)(1 << 23) - 1.0f;
  }
}

static void next_token(token* t, uint32_t* state) {
  fill(t->key, kKvHeads * kDim, state);
  fill(t->value, kKvHeads * kDim, state);
  fill(t->index_key, kIndexDim, state);
  fill(t->query, kHeads * kDim, state);
  fill(t->index_query, kIndexHeads * kIndexDim, state);
}

static seriatim_tensor dense(float* data, int32_t rank, int64_t a, int64_t b, int64_t c) {
  const int64_t shape[3] = {a, b, c};
  seriatim_tensor tensor;
  seriatim_tensor_dense(data, SERIATIM_F32, rank, shape, &tensor, NULL);
  return tensor;
}

static seriatim_status decode(seriatim_transaction* step, int64_t user, int64_t position, token* t,
                              seriatim_engine* engine, float* output, seriatim_error* error) {
  const seriatim_tensor key = dense(t->key, 3, 1, kKvHeads, kDim), value = dense(t->value, 3, 1, kKvHeads, kDim);
  const seriatim_tensor index_key = dense(t->index_key, 2, 1, kIndexDim, 0), out = dense(output, 3, 1, kHeads, kDim);
  const seriatim_layer layer = {.transaction = step, .sequence = user}; /* a staged token is visible to its query */
  const seriatim_plan_ask plan = {.struct_size = sizeof plan,
                                  .layer = layer,
                                  .positions = &position,
                                  .query_count = 1,
                                  .index_queries = dense(t->index_query, 3, 1, kIndexHeads, kIndexDim)};
  const seriatim_attend_ask attend = {.struct_size = sizeof attend,
                                      .layer = layer,
                                      .positions = &position,
                                      .query_count = 1,
                                      .queries = dense(t->query, 3, 1, kHeads, kDim)};
  int32_t row[kRow], count;
  const seriatim_rows rows = {row, kRow, &count};
  const seriatim_const_rows planned = {row, kRow, &count};
  seriatim_status s = seriatim_transaction_append(step, user, 0, position, &key, &value, &index_key, NULL, error);
  if (s == SERIATIM_OK) s = seriatim_plan(engine, &plan, 1, SERIATIM_NAN_REFUSE, &rows, error);
  if (s == SERIATIM_OK) s = seriatim_attend(engine, &attend, 1, &planned, &out, NULL, error);
  if (s == SERIATIM_OK) s = seriatim_transaction_commit(step, error); /* all of the token, or none of it */
  return s;
}

static seriatim_status decode_all(seriatim_cache* cache, seriatim_engine* engine, seriatim_error* error) {
  static float output[kHeads * kDim];
  static token t;
  uint32_t state = 1;
  int64_t user, position;
  seriatim_status s = seriatim_cache_add(cache, 0, &user, error);
  for (position = 0; s == SERIATIM_OK && position < kTokens; ++position) {
    seriatim_transaction* step = NULL;
    next_token(&t, &state);
    s = seriatim_cache_begin(cache, &step, error);
    if (s == SERIATIM_OK) s = decode(step, user, position, &t, engine, output, error);
    seriatim_transaction_destroy(step); /* rolls back what was not committed */
  }
  return s;
}

int main(void) {
  seriatim_geometry_options geometry_options;
  seriatim_cache_options cache_options;
  seriatim_geometry* geometry = NULL;
  seriatim_cache* cache = NULL;
  seriatim_engine* engine = NULL;
  seriatim_work done;
  seriatim_error error;
  seriatim_status s;
  seriatim_error_init(&error);
  seriatim_work_init(&done);
  seriatim_cache_options_init(&cache_options);
  cache_options.capacity_tokens = 4096;
  seriatim_geometry_options_init(&geometry_options); /* QSA's group size and index, small heads */
  geometry_options.budget_tokens = kBudget;
  geometry_options.query_heads = kHeads;
  geometry_options.kv_heads = kKvHeads;
  geometry_options.head_dim = kDim;
  s = seriatim_geometry_create(&geometry_options, &geometry, &error);
  if (s == SERIATIM_OK) s = seriatim_cache_create(geometry, &cache_options, &cache, &error);
  if (s == SERIATIM_OK) s = seriatim_engine_create(NULL, &engine, &error);
  if (s == SERIATIM_OK) s = decode_all(cache, engine, &error);
  if (s == SERIATIM_OK) s = seriatim_engine_work(engine, &done, &error);
  if (s != SERIATIM_OK) fprintf(stderr, "%s: %s\n", seriatim_status_name(s), error.message);
  printf("%lld tokens decoded, %lld of them from dense rows; %lld row tokens read where dense attention reads %d\n",
         (long long)done.queries, (long long)done.dense_rows, (long long)done.row_tokens, kTokens * (kTokens + 1) / 2);
  seriatim_engine_destroy(engine);
  seriatim_cache_destroy(cache);
  seriatim_geometry_destroy(geometry);
  return s == SERIATIM_OK && done.queries == kTokens && done.dense_rows == kRow ? 0 : 1;
}
