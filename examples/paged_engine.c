/* A toy engine that keeps keys and values in pages of its own, 16 tokens each, named by a block table per user. Eight
   users share a step: those whose prompt is not read yet bring a chunk of it, the others one token to decode. Seriatim
   reads the pages where they lie; beside them it keeps the index alone. A cache of Seriatim's own is fed the same
   tokens, and every row and output must have the same bits. */
#include <seriatim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  kUsers = 8,
  kPageTokens = 16,
  kPages = 256,
  kMostTokens = 480,
  kUserPages = kMostTokens / kPageTokens,
  kChunk = 64,
  kDecoded = 12,
  kHeads = 4,
  kKvHeads = 2,
  kDim = 32,
  kIndexHeads = 2,
  kIndexDim = 32,
  kBudget = 64,
  kRow = kBudget + 3,
  kMostQueries = kUsers * kChunk
};

static const int64_t kPrompt[kUsers] = {3, 16, 40, 65, 128, 200, 311, 450};

/* What the engine keeps: a pool of pages that all users share, and which of them are whose. */
static float pool_keys[kPages][kPageTokens][kKvHeads][kDim];
static float pool_values[kPages][kPageTokens][kKvHeads][kDim];
static int32_t block_table[kUsers][kUserPages];
static int32_t pages_taken = 0;

/* What the model gives for the tokens of one user in one step. */
typedef struct chunk {
  int64_t first, count, positions[kChunk];
  float keys[kChunk][kKvHeads][kDim], values[kChunk][kKvHeads][kDim], index_keys[kChunk][kIndexDim];
  float queries[kChunk][kHeads][kDim], index_queries[kChunk][kIndexHeads][kIndexDim];
} chunk;

/* What a step gives. */
typedef struct answers {
  int32_t rows[kMostQueries][kRow], counts[kMostQueries];
  float output[kMostQueries][kHeads][kDim], lse[kMostQueries][kHeads];
} answers;

typedef struct server {
  seriatim_geometry* geometry;
  seriatim_engine* engine;
  seriatim_cache* index; /* raw index keys go in, pooled keys are kept; no keys, no values */
  seriatim_cache* cache; /* to compare with */
  int64_t user[kUsers], cached[kUsers];
  seriatim_borrowed* pages[kUsers];
  int64_t tokens[kUsers];
  int64_t steps, mixed_steps;
} server;

static seriatim_error error;

static void must(seriatim_status status) {
  if (status == SERIATIM_OK) return;
  fprintf(stderr, "%s: %s\n", seriatim_status_name(status), error.message);
  exit(1);
}

static void fill(void* to, size_t bytes, int64_t user, int64_t position, uint32_t kind) {
  float* values = to;
  uint32_t state = (uint32_t)(user * 1000003 + position * 101) + kind;
  size_t i;
  for (i = 0; i < bytes / sizeof *values; ++i) {
    state = state * 1664525u + 1013904223u;
    values[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
  }
}

static void run_model(chunk* c, int64_t user, int64_t first, int64_t count) {
  int64_t t;
  c->first = first;
  c->count = count;
  for (t = 0; t < count; ++t) {
    c->positions[t] = first + t;
    fill(c->keys[t], sizeof c->keys[t], user, first + t, 1);
    fill(c->values[t], sizeof c->values[t], user, first + t, 2);
    fill(c->index_keys[t], sizeof c->index_keys[t], user, first + t, 3);
    fill(c->queries[t], sizeof c->queries[t], user, first + t, 4);
    fill(c->index_queries[t], sizeof c->index_queries[t], user, first + t, 5);
  }
}

/* The engine's own work: a page where one is needed, anywhere in the pool, and the tokens in their slots. */
static void write_pages(int64_t user, const chunk* c) {
  int64_t t;
  for (t = 0; t < c->count; ++t) {
    const int64_t slot = c->first + t, in_page = slot % kPageTokens;
    int32_t* page = &block_table[user][slot / kPageTokens];
    if (in_page == 0) *page = pages_taken++ * 37 % kPages;
    memcpy(pool_keys[*page][in_page], c->keys[t], sizeof c->keys[t]);
    memcpy(pool_values[*page][in_page], c->values[t], sizeof c->values[t]);
  }
}

static seriatim_tensor tensor(void* data, int32_t dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t shape[4] = {a, b, c, d};
  seriatim_tensor made;
  must(seriatim_tensor_dense(data, dtype, rank, shape, &made, &error));
  return made;
}

/* Shows a user's pages to the library, the step's tokens among them. */
static void bind_pages(server* s, int64_t u, const seriatim_transaction* step) {
  const seriatim_tensor keys = tensor(pool_keys, SERIATIM_F32, 4, kPages, kPageTokens, kKvHeads, kDim);
  const seriatim_tensor values = tensor(pool_values, SERIATIM_F32, 4, kPages, kPageTokens, kKvHeads, kDim);
  const seriatim_tensor table = tensor(block_table[u], SERIATIM_I32, 1, kUserPages, 0, 0, 0);
  const seriatim_layer index = {.transaction = step, .sequence = s->user[u]};
  seriatim_borrowed_tensors tensors;
  seriatim_borrowed_tensors_init(&tensors);
  tensors.keys = &keys;
  tensors.values = &values;
  tensors.block_table = &table;
  tensors.index = &index;
  must(seriatim_borrowed_bind(s->pages[u], 0, s->tokens[u], &tensors, &error));
}

/* Plans and attends over the layers of those who take part, all in one call. */
static int64_t answer(server* s, const seriatim_layer* layers, chunk* const* chunks, int64_t asks, answers* to) {
  seriatim_plan_ask plans[kUsers];
  seriatim_attend_ask attends[kUsers];
  const seriatim_rows rows = {to->rows[0], kRow, to->counts};
  const seriatim_const_rows planned = {to->rows[0], kRow, to->counts};
  seriatim_tensor output, lse;
  int64_t queries = 0, i;
  memset(to, 0, sizeof *to);
  for (i = 0; i < asks; ++i) {
    chunk* c = chunks[i];
    seriatim_plan_ask_init(&plans[i]);
    plans[i].layer = layers[i];
    plans[i].index_queries = tensor(c->index_queries, SERIATIM_F32, 3, c->count, kIndexHeads, kIndexDim, 0);
    plans[i].positions = c->positions;
    plans[i].query_count = c->count;
    seriatim_attend_ask_init(&attends[i]);
    attends[i].layer = layers[i];
    attends[i].queries = tensor(c->queries, SERIATIM_F32, 3, c->count, kHeads, kDim, 0);
    attends[i].positions = c->positions;
    attends[i].query_count = c->count;
    queries += c->count;
  }
  output = tensor(to->output, SERIATIM_F32, 3, queries, kHeads, kDim, 0);
  lse = tensor(to->lse, SERIATIM_F32, 2, queries, kHeads, 0, 0);
  must(seriatim_plan(s->engine, plans, asks, SERIATIM_NAN_REFUSE, &rows, &error));
  must(seriatim_attend(s->engine, attends, asks, &planned, &output, &lse, &error));
  return queries;
}

/* One step of the engine: index keys into the store, keys and values into pages, one call for all users. */
static int64_t step_on_pages(server* s, chunk* const* chunks, answers* to) {
  seriatim_layer layers[kUsers];
  seriatim_transaction* step = NULL;
  int64_t u, queries;
  must(seriatim_cache_begin(s->index, &step, &error));
  memset(layers, 0, sizeof layers);
  for (u = 0; u < kUsers; ++u) {
    chunk* c = chunks[u];
    const seriatim_tensor index_keys = tensor(c->index_keys, SERIATIM_F32, 2, c->count, kIndexDim, 0, 0);
    must(seriatim_transaction_append(step, s->user[u], 0, c->first, NULL, NULL, &index_keys, NULL, &error));
    write_pages(u, c);
    bind_pages(s, u, step);
    layers[u].borrowed = s->pages[u];
  }
  queries = answer(s, layers, chunks, kUsers, to);
  must(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
  return queries;
}

/* The same step on a cache that keeps everything. */
static void step_on_cache(server* s, chunk* const* chunks, answers* to) {
  seriatim_layer layers[kUsers];
  seriatim_transaction* step = NULL;
  int64_t u;
  must(seriatim_cache_begin(s->cache, &step, &error));
  memset(layers, 0, sizeof layers);
  for (u = 0; u < kUsers; ++u) {
    chunk* c = chunks[u];
    const seriatim_tensor keys = tensor(c->keys, SERIATIM_F32, 3, c->count, kKvHeads, kDim, 0);
    const seriatim_tensor values = tensor(c->values, SERIATIM_F32, 3, c->count, kKvHeads, kDim, 0);
    const seriatim_tensor index_keys = tensor(c->index_keys, SERIATIM_F32, 2, c->count, kIndexDim, 0, 0);
    must(seriatim_transaction_append(step, s->cached[u], 0, c->first, &keys, &values, &index_keys, NULL, &error));
    layers[u].transaction = step;
    layers[u].sequence = s->cached[u];
  }
  answer(s, layers, chunks, kUsers, to);
  must(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
}

static void make_server(server* s) {
  seriatim_geometry_options geometry;
  seriatim_cache_options cache;
  int64_t u;
  memset(s, 0, sizeof *s);
  seriatim_geometry_options_init(&geometry);
  geometry.budget_tokens = kBudget;
  geometry.query_heads = kHeads;
  geometry.kv_heads = kKvHeads;
  geometry.head_dim = kDim;
  geometry.index_heads = kIndexHeads;
  geometry.index_dim = kIndexDim;
  geometry.index_rotary_dim = kIndexDim / 2;
  must(seriatim_geometry_create(&geometry, &s->geometry, &error));
  must(seriatim_engine_create(NULL, &s->engine, &error));
  seriatim_cache_options_init(&cache);
  cache.capacity_tokens = kUsers * 512;
  must(seriatim_cache_create(s->geometry, &cache, &s->cache, &error));
  cache.index_only = 1;
  must(seriatim_cache_create(s->geometry, &cache, &s->index, &error));
  for (u = 0; u < kUsers; ++u) {
    must(seriatim_cache_add(s->index, 0, &s->user[u], &error));
    must(seriatim_cache_add(s->cache, 0, &s->cached[u], &error));
    must(seriatim_borrowed_create(s->geometry, &s->pages[u], &error));
  }
}

static void end_server(server* s) {
  int64_t u;
  for (u = 0; u < kUsers; ++u) seriatim_borrowed_destroy(s->pages[u]);
  seriatim_cache_destroy(s->cache);
  seriatim_cache_destroy(s->index);
  seriatim_engine_destroy(s->engine);
  seriatim_geometry_destroy(s->geometry);
}

/* The next tokens of every user: a chunk of what is left of the prompt, or one. Gives whether both kinds are there. */
static int schedule(server* s, chunk* const* chunks) {
  int64_t u, prefills = 0;
  for (u = 0; u < kUsers; ++u) {
    const int64_t left = kPrompt[u] - s->tokens[u];
    const int64_t count = left <= 0 ? 1 : left < kChunk ? left : kChunk;
    run_model(chunks[u], u, s->tokens[u], count);
    s->tokens[u] += count;
    if (left > 0) ++prefills;
  }
  return prefills > 0 && prefills < kUsers;
}

int main(void) {
  static server s;
  static answers paged, cached;
  chunk* chunks[kUsers];
  seriatim_work work;
  int64_t queries = 0, u;
  int same = 1;
  seriatim_error_init(&error);
  seriatim_work_init(&work);
  make_server(&s);
  for (u = 0; u < kUsers; ++u) {
    chunks[u] = malloc(sizeof *chunks[u]);
    if (chunks[u] == NULL) return 1;
  }
  while (s.tokens[kUsers - 1] < kPrompt[kUsers - 1] + kDecoded) {
    s.mixed_steps += schedule(&s, chunks);
    queries += step_on_pages(&s, chunks, &paged);
    step_on_cache(&s, chunks, &cached);
    same = same && memcmp(&paged, &cached, sizeof paged) == 0;
    ++s.steps;
  }
  must(seriatim_engine_work(s.engine, &work, &error));
  printf("%lld queries of %d users in %lld steps, %lld of them prefill and decode mixed; %d pages taken; %s\n",
         (long long)queries, kUsers, (long long)s.steps, (long long)s.mixed_steps, (int)pages_taken,
         same ? "rows, outputs and sums are those of a cache, bit for bit" : "NOT what a cache gives");
  for (u = 0; u < kUsers; ++u) free(chunks[u]);
  end_server(&s);
  return same && s.mixed_steps > 4 && work.queries == 2 * queries && work.dense_rows < queries ? 0 : 1;
}
