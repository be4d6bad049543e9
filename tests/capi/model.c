#include "model.h"

#include "check.h"

int checks_done = 0;
int checks_failed = 0;

int checks_end(void) {
  printf("%d checks, %d failed\n", checks_done, checks_failed);
  return checks_failed == 0 && checks_done > 0 ? 0 : 1;
}

void model_options(seriatim_geometry_options* options) {
  seriatim_geometry_options_init(options);
  options->group_tokens = kGroup;
  options->budget_tokens = kBudget;
  options->query_heads = kHeads;
  options->kv_heads = kKvHeads;
  options->head_dim = kDim;
  options->index_heads = kIndexHeads;
  options->index_dim = kIndexDim;
  options->index_rotary_dim = kIndexDim / 2;
}

seriatim_geometry* model_geometry(void) {
  seriatim_geometry_options options;
  seriatim_geometry* geometry = NULL;
  seriatim_error error;
  seriatim_error_init(&error);
  model_options(&options);
  CHECK_OK(seriatim_geometry_create(&options, &geometry, &error));
  return geometry;
}

// Spread over -1 .. 1 by a few rounds of mixing.
static float number(int64_t text, int64_t layer, int64_t kind, int64_t position, int64_t element) {
  uint64_t x = (uint64_t)text * 1000003u + (uint64_t)layer * 10007u + (uint64_t)kind * 101u;
  x = x * 0x9e3779b97f4a7c15u + (uint64_t)position * 4096u + (uint64_t)element;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (float)((int64_t)((x >> 40) & 0xffffu) - 0x8000) / (float)0x8000;
}

static void fill(float* values, int64_t width, int64_t text, int64_t layer, int64_t kind, int64_t first,
                 int64_t count) {
  int64_t token;
  int64_t element;
  for (token = 0; token < count; ++token) {
    for (element = 0; element < width; ++element) {
      values[token * width + element] = number(text, layer, kind, first + token, element);
    }
  }
}

void fill_batch(batch* tokens, int64_t text, int64_t layer, int64_t first, int64_t count) {
  int64_t i;
  fill(tokens->keys, kKvHeads * kDim, text, layer, 0, first, count);
  fill(tokens->values, kKvHeads * kDim, text, layer, 1, first, count);
  fill(tokens->index_keys, kIndexDim, text, layer, 2, first, count);
  fill(tokens->queries, kHeads * kDim, text, layer, 3, first, count);
  fill(tokens->index_queries, kIndexHeads * kIndexDim, text, layer, 4, first, count);
  for (i = 0; i < count; ++i) tokens->positions[i] = first + i;
  tokens->count = count;
}

seriatim_tensor model_tensor(const float* data, int32_t rank, int64_t a, int64_t b, int64_t c) {
  int64_t shape[3];
  seriatim_tensor made;
  shape[0] = a;
  shape[1] = b;
  shape[2] = c;
  memset(&made, 0, sizeof made);
  CHECK(seriatim_tensor_dense((void*)data, SERIATIM_F32, rank, shape, &made, NULL) == SERIATIM_OK);
  return made;
}

seriatim_status append_batch(seriatim_transaction* transaction, int64_t sequence, int64_t layer, const batch* tokens,
                             seriatim_error* error) {
  const seriatim_tensor keys = model_tensor(tokens->keys, 3, tokens->count, kKvHeads, kDim);
  const seriatim_tensor values = model_tensor(tokens->values, 3, tokens->count, kKvHeads, kDim);
  const seriatim_tensor index_keys = model_tensor(tokens->index_keys, 2, tokens->count, kIndexDim, 0);
  return seriatim_transaction_append(transaction, sequence, layer, tokens->positions[0], &keys, &values, &index_keys,
                                     NULL, error);
}

seriatim_engine* model_engine(void) {
  seriatim_engine* engine = NULL;
  seriatim_error error;
  seriatim_error_init(&error);
  CHECK_OK(seriatim_engine_create(NULL, &engine, &error));
  return engine;
}

seriatim_plan_ask plan_of(const seriatim_layer* layer, const batch* asked) {
  seriatim_plan_ask ask;
  seriatim_plan_ask_init(&ask);
  ask.layer = *layer;
  ask.index_queries = model_tensor(asked->index_queries, 3, asked->count, kIndexHeads, kIndexDim);
  ask.positions = asked->positions;
  ask.query_count = asked->count;
  return ask;
}

seriatim_attend_ask attend_of(const seriatim_layer* layer, const batch* asked) {
  seriatim_attend_ask ask;
  seriatim_attend_ask_init(&ask);
  ask.layer = *layer;
  ask.queries = model_tensor(asked->queries, 3, asked->count, kHeads, kDim);
  ask.positions = asked->positions;
  ask.query_count = asked->count;
  return ask;
}

seriatim_status answer_batch(const seriatim_layer* layer, const batch* asked, seriatim_engine* engine, answer* result,
                             seriatim_error* error) {
  const seriatim_plan_ask plan = plan_of(layer, asked);
  const seriatim_attend_ask attend = attend_of(layer, asked);
  const seriatim_tensor output = model_tensor(result->output, 3, asked->count, kHeads, kDim);
  const seriatim_tensor lse = model_tensor(result->lse, 2, asked->count, kHeads, 0);
  const seriatim_rows rows = {result->rows, kCapacity, result->counts};
  const seriatim_const_rows planned = {result->rows, kCapacity, result->counts};
  seriatim_status status;
  memset(result, 0x5a, sizeof *result);
  status = seriatim_plan(engine, &plan, 1, SERIATIM_NAN_REFUSE, &rows, error);
  if (status != SERIATIM_OK) return status;
  return seriatim_attend(engine, &attend, 1, &planned, &output, &lse, error);
}

int same_answer(const answer* a, const answer* b, int64_t count) {
  const size_t n = (size_t)count;
  return memcmp(a->rows, b->rows, n * kCapacity * sizeof *a->rows) == 0 &&
         memcmp(a->counts, b->counts, n * sizeof *a->counts) == 0 &&
         memcmp(a->output, b->output, n * kHeads * kDim * sizeof *a->output) == 0 &&
         memcmp(a->lse, b->lse, n * kHeads * sizeof *a->lse) == 0;
}

seriatim_layer layer_of_snapshot(const seriatim_snapshot* snapshot, int64_t layer) {
  seriatim_layer made;
  memset(&made, 0, sizeof made);
  made.snapshot = snapshot;
  made.layer = layer;
  return made;
}

seriatim_layer layer_of_transaction(const seriatim_transaction* transaction, int64_t sequence, int64_t layer) {
  seriatim_layer made;
  memset(&made, 0, sizeof made);
  made.transaction = transaction;
  made.sequence = sequence;
  made.layer = layer;
  return made;
}
