// Layers over memory that the engine keeps: whatever the form and the index, the bits of a cache. Every refusal names
// the field and the index, and leaves the layer as it was.
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kTokens = 300, kAnchor = 7, kSlot = 5, kPage = 16, kPages = 32, kEntries = 24 };

typedef float vectors[kKvHeads][kDim];

static seriatim_error error;
static batch tokens;
static answer wanted;
static answer got;

// The engine's memory in every form; slot kSlot holds the first token. What holds none is 1e30.
static vectors array_keys[kSlot + kTokens], array_values[kSlot + kTokens];
static float turned_keys[kKvHeads][kSlot + kTokens][kDim];
static vectors pool_keys[kPages][kPage], pool_values[kPages][kPage];
static int32_t table[kEntries];
static int64_t wide_table[kEntries];
static const void* key_pages[kEntries];
static const void* value_pages[kEntries];
static float panels_storage[(kTokens / kGroup + 32) * kIndexDim];

static void fill_tables(void) {
  int64_t i;
  for (i = 0; i < kEntries; ++i) {
    table[i] = (int32_t)((i * 13 + 3) % kPages);
    wide_table[i] = table[i];
    key_pages[i] = pool_keys[table[i]];
    value_pages[i] = pool_values[table[i]];
  }
}

static void fill_memory(void) {
  float* all[] = {array_keys[0][0], array_values[0][0], turned_keys[0][0], pool_keys[0][0][0], pool_values[0][0][0]};
  const size_t counts[] = {sizeof array_keys, sizeof array_values, sizeof turned_keys, sizeof pool_keys,
                           sizeof pool_values};
  const size_t vector_bytes = kDim * sizeof(float);
  size_t i, n;
  int64_t t, h;
  for (i = 0; i < 5; ++i) {
    for (n = 0; n < counts[i] / sizeof(float); ++n) all[i][n] = 1e30f;
  }
  fill_batch(&tokens, 1, 0, kAnchor, kTokens);
  fill_tables();
  for (t = 0; t < kTokens; ++t) {
    const int64_t slot = kSlot + t;
    const int64_t page = table[slot / kPage];
    for (h = 0; h < kKvHeads; ++h) {
      const float* key = tokens.keys + (t * kKvHeads + h) * kDim;
      const float* value = tokens.values + (t * kKvHeads + h) * kDim;
      memcpy(array_keys[slot][h], key, vector_bytes);
      memcpy(array_values[slot][h], value, vector_bytes);
      memcpy(turned_keys[h][slot], key, vector_bytes);
      memcpy(pool_keys[page][slot % kPage][h], key, vector_bytes);
      memcpy(pool_values[page][slot % kPage][h], value, vector_bytes);
    }
  }
}

static seriatim_tensor strided(const void* data, int32_t rank, const int64_t* shape, const int64_t* stride_bytes) {
  seriatim_tensor made;
  memset(&made, 0, sizeof made);
  made.data = (void*)data;
  made.dtype = SERIATIM_F32;
  made.rank = rank;
  memcpy(made.shape, shape, (size_t)rank * sizeof *shape);
  memcpy(made.stride_bytes, stride_bytes, (size_t)rank * sizeof *stride_bytes);
  return made;
}

// What one binding hands over; `keys` and the others are what `tensors` points to.
typedef struct lent {
  seriatim_borrowed_tensors tensors;
  seriatim_tensor keys, values, table, panels;
} lent;

enum { kArray, kTurned, kPool, kWidePool, kAddresses, kForms };

static void lend(lent* to, int form) {
  const int64_t array_shape[3] = {kSlot + kTokens, kKvHeads, kDim};
  const int64_t page_shape[3] = {kPage, kKvHeads, kDim};
  const int64_t pool_shape[4] = {kPages, kPage, kKvHeads, kDim};
  const int64_t dense[3] = {sizeof(vectors), kDim * sizeof(float), sizeof(float)};
  const int64_t turned[3] = {kDim * sizeof(float), sizeof turned_keys[0], sizeof(float)};
  const int64_t pooled[4] = {sizeof pool_keys[0], sizeof(vectors), kDim * sizeof(float), sizeof(float)};
  const int64_t entries = kEntries;
  fill_tables();
  memset(to, 0, sizeof *to);
  seriatim_borrowed_tensors_init(&to->tensors);
  to->tensors.first_slot = kSlot;
  to->tensors.keys = &to->keys;
  to->tensors.values = &to->values;
  to->values = strided(array_values, 3, array_shape, dense);
  if (form == kArray) to->keys = strided(array_keys, 3, array_shape, dense);
  if (form == kTurned) to->keys = strided(turned_keys, 3, array_shape, turned);
  if (form == kPool || form == kWidePool) {
    to->keys = strided(pool_keys, 4, pool_shape, pooled);
    to->values = strided(pool_values, 4, pool_shape, pooled);
    CHECK_OK(seriatim_tensor_dense(form == kPool ? (void*)table : (void*)wide_table,
                                   form == kPool ? SERIATIM_I32 : SERIATIM_I64, 1, &entries, &to->table, &error));
    to->tensors.block_table = &to->table;
  }
  if (form == kAddresses) {
    to->keys = to->values = strided(NULL, 3, page_shape, dense);
    to->tensors.key_pages = key_pages;
    to->tensors.value_pages = value_pages;
    to->tensors.key_page_count = to->tensors.value_page_count = kEntries;
  }
}

// Panels of the engine's own, from index keys pooled elsewhere.
static void lend_panels(lent* to, const seriatim_geometry* geometry) {
  static float pooled_keys[kTokens / kGroup * kIndexDim];
  static float zeros[kIndexDim];
  const int64_t panels = (kTokens / kGroup + 15) / 16;
  const int64_t shape[3] = {panels, kIndexDim, 16};
  const seriatim_tensor weight = model_tensor(zeros, 1, kIndexDim, 0, 0);
  const seriatim_tensor raw = model_tensor(tokens.index_keys, 2, kTokens, kIndexDim, 0);
  const seriatim_tensor pooled = model_tensor(pooled_keys, 2, kTokens / kGroup, kIndexDim, 0);
  char* at = (char*)panels_storage;
  int64_t bytes = -1;
  while ((uintptr_t)at % 64 != 0) ++at;
  CHECK_OK(seriatim_panels_bytes(geometry, kTokens / kGroup, &bytes, &error));
  CHECK(bytes == panels * 16 * kIndexDim * (int64_t)sizeof(float));
  CHECK_OK(seriatim_pool_keys(geometry, &weight, &raw, kAnchor, NULL, &pooled, &error));
  CHECK_FAILS(seriatim_pack_panels(geometry, &pooled, at, bytes - 1, &error), SERIATIM_INVALID_ARGUMENT, "panels");
  CHECK_FAILS(seriatim_pack_panels(geometry, &pooled, at + 4, bytes, &error), SERIATIM_INVALID_ARGUMENT, "panels");
  CHECK_FAILS(seriatim_pack_panels(geometry, &pooled, NULL, bytes, &error), SERIATIM_INVALID_ARGUMENT, "panels");
  CHECK_FAILS(seriatim_pack_panels(geometry, NULL, at, bytes, &error), SERIATIM_INVALID_ARGUMENT, "pooled");
  CHECK_FAILS(seriatim_panels_bytes(geometry, -1, &bytes, &error), SERIATIM_INVALID_ARGUMENT, "groups");
  CHECK_OK(seriatim_pack_panels(geometry, &pooled, at, bytes, &error));
  CHECK_OK(seriatim_tensor_dense(at, SERIATIM_F32, 3, shape, &to->panels, &error));
  to->tensors.panels = &to->panels;
}

static seriatim_cache* new_cache(const seriatim_geometry* geometry, int32_t index_only, int64_t* sequence) {
  seriatim_cache_options options;
  seriatim_cache* cache = NULL;
  seriatim_cache_options_init(&options);
  options.capacity_tokens = 1024;
  options.index_only = index_only;
  CHECK_OK(seriatim_cache_create(geometry, &options, &cache, &error));
  CHECK_OK(seriatim_cache_add(cache, kAnchor, sequence, &error));
  return cache;
}

// An index store that holds the text's index keys, and a snapshot of it.
static seriatim_cache* new_store(const seriatim_geometry* geometry, seriatim_snapshot** snapshot) {
  const seriatim_tensor index_keys = model_tensor(tokens.index_keys, 2, kTokens, kIndexDim, 0);
  const seriatim_tensor keys = model_tensor(tokens.keys, 3, kTokens, kKvHeads, kDim);
  seriatim_transaction* step = NULL;
  seriatim_cache_bytes bytes;
  seriatim_layer read;
  seriatim_token token;
  int64_t sequence = -1;
  seriatim_cache* store = new_cache(geometry, 1, &sequence);
  CHECK_OK(seriatim_cache_begin(store, &step, &error));
  CHECK_FAILS(seriatim_transaction_append(step, sequence, 0, kAnchor, &keys, NULL, &index_keys, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "keys");
  CHECK_OK(seriatim_transaction_append(step, sequence, 0, kAnchor, NULL, NULL, &index_keys, NULL, &error));
  CHECK_OK(seriatim_transaction_commit(step, &error));
  seriatim_transaction_destroy(step);
  CHECK_OK(seriatim_cache_snapshot(store, sequence, snapshot, &error));
  seriatim_cache_bytes_init(&bytes);
  CHECK_OK(seriatim_cache_get_bytes(store, &bytes, &error));
  CHECK(bytes.keys_values == 0 && bytes.pooled_keys > 0);
  read = layer_of_snapshot(*snapshot, 0);
  CHECK_OK(seriatim_layer_token(&read, kAnchor + 9, 0, &token, &error));
  CHECK(token.key == NULL && token.value == NULL && token.raw_index_key != NULL && token.coordinates[2] == kAnchor + 9);
  return store;
}

static seriatim_layer layer_of(const seriatim_borrowed* borrowed) {
  seriatim_layer made;
  memset(&made, 0, sizeof made);
  made.borrowed = borrowed;
  return made;
}

static void check_answers(const seriatim_borrowed* borrowed, seriatim_engine* engine) {
  const seriatim_layer read = layer_of(borrowed);
  CHECK_OK(answer_batch(&read, &tokens, engine, &got, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
}

static void what_a_cache_answers(const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_transaction* step = NULL;
  seriatim_layer staged;
  int64_t sequence = -1;
  seriatim_cache* cache = new_cache(geometry, 0, &sequence);
  CHECK_OK(seriatim_cache_begin(cache, &step, &error));
  CHECK_OK(append_batch(step, sequence, 0, &tokens, &error));
  staged = layer_of_transaction(step, sequence, 0);
  CHECK_OK(answer_batch(&staged, &tokens, engine, &wanted, &error));
  seriatim_transaction_destroy(step);
  seriatim_cache_destroy(cache);
}

static void every_form_has_the_bits_of_a_cache(const seriatim_geometry* geometry, seriatim_engine* engine,
                                               const seriatim_snapshot* store) {
  seriatim_borrowed* borrowed = NULL;
  const seriatim_layer index = layer_of_snapshot(store, 0);
  lent given;
  int form;
  CHECK_OK(seriatim_borrowed_create(geometry, &borrowed, &error));
  for (form = 0; form < kForms; ++form) {
    seriatim_layer read = layer_of(borrowed);
    seriatim_token token;
    int64_t anchor = -1, count = -1;
    lend(&given, form);
    given.tensors.index = &index;
    CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));
    check_answers(borrowed, engine);
    CHECK_OK(seriatim_layer_run(&read, &anchor, &count, &error));
    CHECK(anchor == kAnchor && count == kTokens);
    CHECK_OK(seriatim_layer_token(&read, kAnchor + 20, 1, &token, &error));
    CHECK(memcmp(token.key, tokens.keys + (20 * kKvHeads + 1) * kDim, kDim * sizeof(float)) == 0);
    CHECK(memcmp(token.value, tokens.values + (20 * kKvHeads + 1) * kDim, kDim * sizeof(float)) == 0);
  }
  seriatim_borrowed_destroy(borrowed);
}

static void every_index_has_the_bits_of_a_cache(const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_borrowed* borrowed = NULL;
  seriatim_borrowed* other = NULL;
  seriatim_snapshot* snapshot = NULL;
  seriatim_cache* store = new_store(geometry, &snapshot);
  seriatim_layer index = layer_of_snapshot(snapshot, 0);
  lent given;
  CHECK_OK(seriatim_borrowed_create(geometry, &borrowed, &error));
  CHECK_OK(seriatim_borrowed_create(geometry, &other, &error));
  lend(&given, kPool);
  lend_panels(&given, geometry);
  CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));
  check_answers(borrowed, engine);
  given.tensors.panels_max_abs = 100.0f;
  CHECK_OK(seriatim_borrowed_bind(other, kAnchor, kTokens, &given.tensors, &error));
  check_answers(other, engine);

  lend(&given, kArray);  // the index of another borrowed layer
  index = layer_of(other);
  given.tensors.index = &index;
  CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));
  check_answers(borrowed, engine);

  index = layer_of_snapshot(snapshot, 0);  // which goes, and its store: the binding keeps it
  CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));
  seriatim_snapshot_destroy(snapshot);
  seriatim_cache_destroy(store);
  check_answers(borrowed, engine);
  seriatim_borrowed_destroy(other);
  seriatim_borrowed_destroy(borrowed);
}

// Two layers: one plans and keeps no keys, the other attends and has no index.
static void planning_and_attending_apart(const seriatim_geometry* geometry, seriatim_engine* engine) {
  seriatim_borrowed* planning = NULL;
  seriatim_borrowed* attending = NULL;
  const seriatim_rows rows = {got.rows, kCapacity, got.counts};
  const seriatim_const_rows planned = {got.rows, kCapacity, got.counts};
  const seriatim_tensor output = model_tensor(got.output, 3, kTokens, kHeads, kDim);
  const seriatim_tensor lse = model_tensor(got.lse, 2, kTokens, kHeads, 0);
  seriatim_layer layers[2];
  seriatim_token token;
  seriatim_plan_ask plan;
  seriatim_attend_ask attend;
  lent given;
  CHECK_OK(seriatim_borrowed_create(geometry, &planning, &error));
  CHECK_OK(seriatim_borrowed_create(geometry, &attending, &error));
  lend(&given, kAddresses);
  CHECK_OK(seriatim_borrowed_bind(attending, kAnchor, kTokens, &given.tensors, &error));
  lend_panels(&given, geometry);
  given.tensors.keys = given.tensors.values = NULL;
  given.tensors.key_pages = given.tensors.value_pages = NULL;
  given.tensors.key_page_count = given.tensors.value_page_count = 0;
  CHECK_OK(seriatim_borrowed_bind(planning, kAnchor, kTokens, &given.tensors, &error));
  layers[0] = layer_of(planning);
  layers[1] = layer_of(attending);
  CHECK_OK(seriatim_layer_token(&layers[0], kAnchor, 0, &token, &error));
  CHECK(token.key == NULL && token.value == NULL && token.raw_index_key == NULL);
  memset(&got, 0x5a, sizeof got);
  plan = plan_of(&layers[1], &tokens);
  CHECK_FAILS(seriatim_plan(engine, &plan, 1, 0, &rows, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  plan = plan_of(&layers[0], &tokens);
  CHECK_OK(seriatim_plan(engine, &plan, 1, 0, &rows, &error));
  attend = attend_of(&layers[0], &tokens);
  CHECK(seriatim_attend(engine, &attend, 1, &planned, &output, &lse, &error) == SERIATIM_INVALID_ARGUMENT);
  attend = attend_of(&layers[1], &tokens);
  CHECK_OK(seriatim_attend(engine, &attend, 1, &planned, &output, &lse, &error));
  CHECK(same_answer(&got, &wanted, kTokens));
  seriatim_borrowed_destroy(planning);
  seriatim_borrowed_destroy(attending);
}

// Binds with one thing spoilt; the layer answers as before.
#define REFUSED(form, change, code, name, at)                                                            \
  do {                                                                                                   \
    lend(&given, form);                                                                                  \
    given.tensors.index = &index;                                                                        \
    CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));                \
    change;                                                                                              \
    CHECK_FAILS(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error), code, name); \
    CHECK(error.index == (at));                                                                          \
    read = layer_of(borrowed);                                                                           \
    CHECK_OK(seriatim_layer_run(&read, &anchor, &count, &error));                                        \
    CHECK(anchor == kAnchor && count == kTokens);                                                        \
  } while (0)

static void what_cannot_be_borrowed(const seriatim_geometry* geometry, seriatim_engine* engine,
                                    const seriatim_snapshot* store) {
  seriatim_borrowed* borrowed = NULL;
  seriatim_layer index = layer_of_snapshot(store, 0);
  const seriatim_layer right = index;
  seriatim_layer read;
  int64_t anchor = -1, count = -1;
  lent given;
  CHECK_OK(seriatim_borrowed_create(geometry, &borrowed, &error));
  REFUSED(kArray, given.keys.data = NULL, SERIATIM_INVALID_ARGUMENT, "keys", -1);
  REFUSED(kArray, given.values.data = NULL, SERIATIM_INVALID_ARGUMENT, "values", -1);
  REFUSED(kArray, given.keys.dtype = SERIATIM_F16, SERIATIM_INVALID_ARGUMENT, "keys", -1);
  REFUSED(kArray, given.keys.dtype = 7, SERIATIM_INVALID_ARGUMENT, "keys", -1);
  REFUSED(kArray, given.keys.shape[0] = kSlot + kTokens - 1, SERIATIM_INVALID_ARGUMENT, "keys", kSlot + kTokens - 1);
  REFUSED(kArray, given.keys.stride_bytes[0] = 4, SERIATIM_INVALID_ARGUMENT, "keys", 0);
  REFUSED(kTurned, given.keys.stride_bytes[1] = 0, SERIATIM_INVALID_ARGUMENT, "keys", 1);
  REFUSED(kArray, given.keys.stride_bytes[0] = -64, SERIATIM_INVALID_ARGUMENT, "keys", -1);
  REFUSED(kArray, given.tensors.values = NULL, SERIATIM_INVALID_ARGUMENT, "values", -1);
  REFUSED(kArray, given.tensors.keys = NULL, SERIATIM_INVALID_ARGUMENT, "values", -1);
  REFUSED(kArray, given.tensors.first_slot = -1, SERIATIM_INVALID_ARGUMENT, "first_slot", -1);
  REFUSED(kArray, given.tensors.first_slot = INT64_MAX, SERIATIM_OVERFLOW, "first_slot", -1);
  REFUSED(kArray, given.tensors.reserved = 1, SERIATIM_UNSUPPORTED, "tensors", -1);
  REFUSED(kPool, table[4] = kPages, SERIATIM_INVALID_ARGUMENT, "block_table", 4);
  REFUSED(kPool, table[4] = -1, SERIATIM_INVALID_ARGUMENT, "block_table", 4);
  REFUSED(kPool, table[4] = table[3], SERIATIM_INVALID_ARGUMENT, "block_table", 4);
  REFUSED(kPool, given.table.shape[0] = 5, SERIATIM_INVALID_ARGUMENT, "block_table", 5);
  REFUSED(kPool, given.table.data = NULL, SERIATIM_INVALID_ARGUMENT, "block_table", -1);
  REFUSED(kPool, given.table.dtype = SERIATIM_F32, SERIATIM_INVALID_ARGUMENT, "block_table", -1);
  REFUSED(kAddresses, key_pages[2] = NULL, SERIATIM_INVALID_ARGUMENT, "key_pages", 2);
  REFUSED(kAddresses, given.tensors.key_page_count = 3, SERIATIM_INVALID_ARGUMENT, "key_pages", 3);
  REFUSED(kAddresses, given.tensors.key_pages = NULL, SERIATIM_INVALID_ARGUMENT, "key_pages", -1);
  REFUSED(kAddresses, given.tensors.value_page_count = -1, SERIATIM_INVALID_ARGUMENT, "value_pages", -1);
  REFUSED(kPool, given.tensors.key_pages = key_pages;
          given.tensors.key_page_count = kEntries, SERIATIM_INVALID_ARGUMENT, "block_table", -1);
  REFUSED(kPool, index.layer = 1, SERIATIM_INVALID_ARGUMENT, "layer", 1);
  index = right;
  REFUSED(kPool, lend_panels(&given, geometry), SERIATIM_INVALID_ARGUMENT, "index", -1);
  REFUSED(kPool, given.tensors.index = NULL; lend_panels(&given, geometry);
          given.panels.data = NULL, SERIATIM_INVALID_ARGUMENT, "panels", -1);
  REFUSED(kPool, given.tensors.index = NULL; lend_panels(&given, geometry);
          given.panels.shape[0] = 2, SERIATIM_INVALID_ARGUMENT, "panels", 2);
  check_answers(borrowed, engine);

  CHECK_FAILS(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, NULL, &error), SERIATIM_INVALID_ARGUMENT, "tensors");
  CHECK_FAILS(seriatim_borrowed_bind(NULL, kAnchor, kTokens, &given.tensors, &error), SERIATIM_INVALID_ARGUMENT,
              "borrowed");
  lend(&given, kPool);
  given.tensors.index = &index;
  CHECK(seriatim_borrowed_bind(borrowed, -1, kTokens, &given.tensors, &error) == SERIATIM_INVALID_ARGUMENT);
  CHECK(seriatim_borrowed_bind(borrowed, kAnchor, -1, &given.tensors, &error) == SERIATIM_INVALID_ARGUMENT);
  CHECK_FAILS(seriatim_borrowed_bind(borrowed, kAnchor, kTokens - 1, &given.tensors, &error), SERIATIM_INVALID_ARGUMENT,
              "index");
  CHECK_FAILS(seriatim_borrowed_create(NULL, &borrowed, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_borrowed_create(geometry, NULL, &error), SERIATIM_INVALID_ARGUMENT, "borrowed");
  read = layer_of(borrowed);
  read.snapshot = store;
  CHECK_FAILS(seriatim_layer_run(&read, &anchor, &count, &error), SERIATIM_INVALID_ARGUMENT, "layer");
  check_answers(borrowed, engine);
  seriatim_borrowed_destroy(borrowed);
  seriatim_borrowed_destroy(NULL);
  seriatim_borrowed_tensors_init(NULL);
}

static void structs_of_other_versions(const seriatim_geometry* geometry, seriatim_engine* engine,
                                      const seriatim_snapshot* store) {
  struct newer {
    seriatim_borrowed_tensors known;
    int64_t unknown;
  } newer;
  seriatim_borrowed* borrowed = NULL;
  const seriatim_layer index = layer_of_snapshot(store, 0);
  lent given;
  lend(&given, kPool);
  given.tensors.index = &index;
  CHECK_OK(seriatim_borrowed_create(geometry, &borrowed, &error));
  newer.known = given.tensors;
  newer.known.struct_size = sizeof newer;
  newer.unknown = 1;
  CHECK_FAILS(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &newer.known, &error), SERIATIM_UNSUPPORTED,
              "tensors");
  newer.unknown = 0;
  CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &newer.known, &error));
  check_answers(borrowed, engine);
  // Without its last fields: no bound on the panels is known, which is the default.
  lend_panels(&given, geometry);
  given.tensors.index = NULL;
  given.tensors.struct_size = offsetof(seriatim_borrowed_tensors, panels_max_abs);
  given.tensors.panels_max_abs = 0.0f;  // not read; it would be wrong
  CHECK_OK(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error));
  check_answers(borrowed, engine);
  given.tensors.struct_size = 12;
  CHECK_FAILS(seriatim_borrowed_bind(borrowed, kAnchor, kTokens, &given.tensors, &error), SERIATIM_INVALID_ARGUMENT,
              "tensors");
  seriatim_borrowed_destroy(borrowed);
}

int main(void) {
  seriatim_geometry* geometry;
  seriatim_engine* engine;
  seriatim_snapshot* snapshot = NULL;
  seriatim_cache* store;
  seriatim_error_init(&error);
  geometry = model_geometry();
  engine = model_engine();
  fill_memory();
  what_a_cache_answers(geometry, engine);
  store = new_store(geometry, &snapshot);
  every_form_has_the_bits_of_a_cache(geometry, engine, snapshot);
  every_index_has_the_bits_of_a_cache(geometry, engine);
  planning_and_attending_apart(geometry, engine);
  what_cannot_be_borrowed(geometry, engine, snapshot);
  structs_of_other_versions(geometry, engine, snapshot);
  seriatim_snapshot_destroy(snapshot);
  seriatim_cache_destroy(store);
  seriatim_engine_destroy(engine);
  seriatim_geometry_destroy(geometry);
  return checks_end();
}
