// A small model for the C tests: every number follows from what it stands for, so that any chunking gives the same
// tokens.
#ifndef SERIATIM_TESTS_CAPI_MODEL_H_
#define SERIATIM_TESTS_CAPI_MODEL_H_

#include "seriatim.h"

enum {
  kGroup = 4,
  kBudget = 32,
  kCapacity = kBudget + kGroup - 1,
  kHeads = 4,
  kKvHeads = 2,
  kDim = 16,
  kIndexHeads = 2,
  kIndexDim = 16,
  kMost = 512
};

// Up to kMost tokens or queries.
typedef struct batch {
  float keys[kMost * kKvHeads * kDim];
  float values[kMost * kKvHeads * kDim];
  float index_keys[kMost * kIndexDim];
  float queries[kMost * kHeads * kDim];
  float index_queries[kMost * kIndexHeads * kIndexDim];
  int64_t positions[kMost];
  int64_t count;
} batch;

// What plan and attend gave for a batch.
typedef struct answer {
  int32_t rows[kMost * kCapacity];
  int32_t counts[kMost];
  float output[kMost * kHeads * kDim];
  float lse[kMost * kHeads];
} answer;

void model_options(seriatim_geometry_options* options);
seriatim_geometry* model_geometry(void);

// The tokens of `layer` at first .. first + count - 1 of a text, and their queries.
void fill_batch(batch* tokens, int64_t text, int64_t layer, int64_t first, int64_t count);

seriatim_status append_batch(seriatim_transaction* transaction, int64_t sequence, int64_t layer, const batch* tokens,
                             seriatim_error* error);
// Plans, attends and checks every row's form. `result` is filled with marks first, so that what is not written shows.
seriatim_status answer_batch(const seriatim_layer* layer, const batch* asked, seriatim_engine* engine, answer* result,
                             seriatim_error* error);
// Whether the first `count` queries got the same bits.
int same_answer(const answer* a, const answer* b, int64_t count);

seriatim_engine* model_engine(void);  // the calling thread

seriatim_plan_ask plan_of(const seriatim_layer* layer, const batch* asked);
seriatim_attend_ask attend_of(const seriatim_layer* layer, const batch* asked);
// A dense f32 view.
seriatim_tensor model_tensor(const float* data, int32_t rank, int64_t a, int64_t b, int64_t c);

seriatim_layer layer_of_snapshot(const seriatim_snapshot* snapshot, int64_t layer);
seriatim_layer layer_of_transaction(const seriatim_transaction* transaction, int64_t sequence, int64_t layer);

#endif  // SERIATIM_TESTS_CAPI_MODEL_H_
