// Attention in halves: the splits of a row, computed apart and by different kernels, fold to the bits of the whole.
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kBig = 400, kRowRoom = kBig + kGroup - 1, kTokens = 500, kQueries = 12, kSplits = 5 };

static seriatim_error error;
static batch tokens;
static int32_t entries[kQueries * kRowRoom];
static int32_t counts[kQueries];
static float wanted[kQueries * kHeads * kDim], wanted_lse[kQueries * kHeads];
static float got[kQueries * kHeads * kDim], got_lse[kQueries * kHeads];
static const float kSinks[kHeads] = {0.5f, -3.0f, 0.0f, 2.0f};

typedef struct whole {
  seriatim_geometry* geometry;
  seriatim_engine* engine;
  seriatim_engine* reference;
  seriatim_cache* cache;
  seriatim_transaction* step;
  seriatim_attend_ask ask;
  seriatim_tensor output, lse;
  int64_t partial;  // floats
} whole;

static const seriatim_const_rows kPlanned = {entries, kRowRoom, counts};

static whole make_whole(void) {
  static batch all;
  const seriatim_rows rows = {entries, kRowRoom, counts};
  seriatim_geometry_options options;
  seriatim_engine_options engine_options;
  seriatim_cache_options cache_options;
  seriatim_plan_ask plan;
  seriatim_layer layer;
  seriatim_tensor output, lse;
  whole w;
  int64_t sequence = -1;
  memset(&w, 0, sizeof w);
  model_options(&options);
  options.budget_tokens = kBig;
  CHECK_OK(seriatim_geometry_create(&options, &w.geometry, &error));
  w.engine = model_engine();
  seriatim_engine_options_init(&engine_options);
  engine_options.kernels = "reference";
  CHECK_OK(seriatim_engine_create(&engine_options, &w.reference, &error));
  seriatim_cache_options_init(&cache_options);
  cache_options.capacity_tokens = 1024;
  CHECK_OK(seriatim_cache_create(w.geometry, &cache_options, &w.cache, &error));
  CHECK_OK(seriatim_cache_add(w.cache, 0, &sequence, &error));
  CHECK_OK(seriatim_cache_begin(w.cache, &w.step, &error));
  fill_batch(&all, 2, 0, 0, kTokens);
  CHECK_OK(append_batch(w.step, sequence, 0, &all, &error));
  layer = layer_of_transaction(w.step, sequence, 0);
  fill_batch(&tokens, 2, 0, kTokens - kQueries, kQueries);
  tokens.positions[0] = 3;    // a row of one split
  tokens.positions[1] = 255;  // two, the second full
  plan = plan_of(&layer, &tokens);
  CHECK_OK(seriatim_plan(w.engine, &plan, 1, SERIATIM_NAN_REFUSE, &rows, &error));
  CHECK(counts[0] == 4 && counts[1] == 256 && counts[kQueries - 1] == kBig);
  w.ask = attend_of(&layer, &tokens);
  w.ask.sinks = kSinks;
  w.ask.sink_count = kHeads;
  output = model_tensor(wanted, 3, kQueries, kHeads, kDim);
  lse = model_tensor(wanted_lse, 2, kQueries, kHeads, 0);
  CHECK_OK(seriatim_attend(w.engine, &w.ask, 1, &kPlanned, &output, &lse, &error));
  w.output = model_tensor(got, 3, kQueries, kHeads, kDim);
  w.lse = model_tensor(got_lse, 2, kQueries, kHeads, 0);
  CHECK_OK(seriatim_partial_floats(w.geometry, &w.partial, &error));
  CHECK(w.partial == kHeads * (2 + kDim));
  return w;
}

static void end_whole(whole* w) {
  seriatim_transaction_destroy(w->step);
  seriatim_cache_destroy(w->cache);
  seriatim_engine_destroy(w->engine);
  seriatim_engine_destroy(w->reference);
  seriatim_geometry_destroy(w->geometry);
}

static float* new_floats(int64_t count) {
  float* floats = malloc((size_t)count * sizeof *floats);
  int64_t i;
  for (i = 0; i < count; ++i) floats[i] = 77.0f;
  return floats;
}

// Splits first .. first + splits - 1, laid among all of them.
static void take_splits(const whole* w, seriatim_engine* engine, int64_t first, int64_t splits, float* all) {
  const int64_t floats = kQueries * splits * w->partial;
  float* some = new_floats(floats);
  int64_t q;
  CHECK_OK(seriatim_attend_partials(engine, &w->ask, &kPlanned, first, splits, some, floats, &error));
  for (q = 0; q < kQueries; ++q) {
    memcpy(all + (q * kSplits + first) * w->partial, some + q * splits * w->partial,
           (size_t)(splits * w->partial) * sizeof *all);
  }
  free(some);
}

static void ranges_fold_to_the_bits_of_the_whole(const whole* w) {
  const int64_t floats = kQueries * kSplits * w->partial;
  float* all = new_floats(floats);
  take_splits(w, w->engine, 0, 1, all);
  take_splits(w, w->reference, 1, 2, all);
  take_splits(w, w->engine, 3, kSplits - 3, all);
  CHECK(isinf(all[w->partial]) && all[w->partial] < 0.0f);  // query 0 has no second split
  CHECK(all[w->partial + kHeads] == 0.0f && all[w->partial + 2 * kHeads] == 0.0f);
  CHECK(isfinite(all[(kQueries - 1) * kSplits * w->partial + 3 * w->partial]));  // the last one has four
  memset(got, 0x5a, sizeof got);
  memset(got_lse, 0x5a, sizeof got_lse);
  CHECK_OK(seriatim_fold_partials(w->reference, w->geometry, all, floats, kSplits, kSinks, kHeads, &w->output, &w->lse,
                                  &error));
  CHECK(memcmp(got, wanted, sizeof got) == 0 && memcmp(got_lse, wanted_lse, sizeof got_lse) == 0);
  memset(got, 0x5a, sizeof got);
  CHECK_OK(seriatim_fold_partials(w->engine, w->geometry, all, floats, kSplits, NULL, 0, &w->output, NULL, &error));
  CHECK(memcmp(got, wanted, sizeof got) != 0);  // the sinks count
  free(all);
}

static void what_does_not_fit_is_refused(const whole* w) {
  const int64_t floats = kQueries * w->partial;
  float* partials = new_floats(floats);
  seriatim_attend_ask ask = w->ask;
  seriatim_tensor output = w->output;
  int64_t number = 0;
  CHECK_FAILS(seriatim_partial_floats(NULL, &number, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_partial_floats(w->geometry, NULL, &error), SERIATIM_INVALID_ARGUMENT, "floats");
  CHECK_FAILS(seriatim_attend_partials(NULL, &ask, &kPlanned, 0, 1, partials, floats, &error),
              SERIATIM_INVALID_ARGUMENT, "engine");
  CHECK_FAILS(seriatim_attend_partials(w->engine, NULL, &kPlanned, 0, 1, partials, floats, &error),
              SERIATIM_INVALID_ARGUMENT, "asks");
  CHECK_FAILS(seriatim_attend_partials(w->engine, &ask, NULL, 0, 1, partials, floats, &error),
              SERIATIM_INVALID_ARGUMENT, "rows");
  CHECK_FAILS(seriatim_attend_partials(w->engine, &ask, &kPlanned, 0, 1, NULL, floats, &error),
              SERIATIM_INVALID_ARGUMENT, "partials");
  CHECK_FAILS(seriatim_attend_partials(w->engine, &ask, &kPlanned, 0, 1, partials, floats - 1, &error),
              SERIATIM_INVALID_ARGUMENT, "partials");
  CHECK(seriatim_attend_partials(w->engine, &ask, &kPlanned, -1, 1, partials, floats, &error) ==
        SERIATIM_INVALID_ARGUMENT);
  CHECK(seriatim_attend_partials(w->engine, &ask, &kPlanned, 0, -1, partials, floats, &error) ==
        SERIATIM_INVALID_ARGUMENT);
  ask.queries.data = NULL;
  CHECK_FAILS(seriatim_attend_partials(w->engine, &ask, &kPlanned, 0, 1, partials, floats, &error),
              SERIATIM_INVALID_ARGUMENT, "queries");
  CHECK(partials[0] == 77.0f && partials[floats - 1] == 77.0f);
  memset(got, 0x5a, sizeof got);
  CHECK_FAILS(seriatim_fold_partials(NULL, w->geometry, partials, floats, 1, NULL, 0, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "engine");
  CHECK_FAILS(seriatim_fold_partials(w->engine, NULL, partials, floats, 1, NULL, 0, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_fold_partials(w->engine, w->geometry, NULL, floats, 1, NULL, 0, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "partials");
  CHECK_FAILS(seriatim_fold_partials(w->engine, w->geometry, partials, floats, 2, NULL, 0, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "partials");
  CHECK_FAILS(seriatim_fold_partials(w->engine, w->geometry, partials, floats, 1, kSinks, 1, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "sinks");
  CHECK_FAILS(seriatim_fold_partials(w->engine, w->geometry, partials, floats, 1, NULL, 0, NULL, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "output");
  output.data = NULL;
  CHECK_FAILS(seriatim_fold_partials(w->engine, w->geometry, partials, floats, 1, NULL, 0, &output, NULL, &error),
              SERIATIM_INVALID_ARGUMENT, "output");
  CHECK(memcmp(got, "\x5a\x5a\x5a\x5a", 4) == 0);
  free(partials);
}

int main(void) {
  whole w;
  seriatim_error_init(&error);
  w = make_whole();
  ranges_fold_to_the_bits_of_the_whole(&w);
  what_does_not_fit_is_refused(&w);
  end_whole(&w);
  return checks_end();
}
