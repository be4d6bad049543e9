// Panels that the caller keeps, pooled as groups close: the bytes of keys pooled at once and packed.
#include <math.h>
#include <stdlib.h>

#include "check.h"
#include "model.h"

enum { kUsers = 3, kMostTokens = 210, kMostPanels = 4, kSlot = 5, kAnchor = 7 };

static seriatim_error error;
static batch tokens[kUsers];
static const int64_t lengths[kUsers] = {kMostTokens, 3, 130};
static float raw[kUsers][kSlot + kMostTokens][kIndexDim];
static float panels[kUsers][kMostPanels][kIndexDim][16];
static float packed[kMostPanels * kIndexDim * 16 + 16];
static float norm_weight[kIndexDim];

static void fill_memory(void) {
  int64_t i, u;
  for (i = 0; i < kIndexDim; ++i) norm_weight[i] = 0.25f - 0.0625f * (float)(i % 7);
  for (u = 0; u < kUsers; ++u) {
    fill_batch(&tokens[u], u + 1, 0, kAnchor, lengths[u]);
    memcpy(raw[u][kSlot], tokens[u].index_keys, (size_t)(lengths[u] * kIndexDim) * sizeof(float));
  }
}

// What has come of user u when `count` tokens have, of which `pooled` groups are in the panels.
static seriatim_pool_ask ask_of(int64_t u, int64_t count, int64_t pooled) {
  seriatim_pool_ask ask;
  seriatim_pool_ask_init(&ask);
  ask.raw = model_tensor(raw[u][0], 2, kSlot + kMostTokens, kIndexDim, 0);
  ask.panels = model_tensor(panels[u][0][0], 3, kMostPanels, kIndexDim, 16);
  ask.anchor = kAnchor;
  ask.tokens = count;
  ask.first_slot = kSlot;
  ask.first_group = pooled;
  return ask;
}

static float largest_of(const float* all, int64_t count) {
  float largest = 0.0f;
  int64_t i;
  for (i = 0; i < count; ++i) largest = fabsf(all[i]) > largest ? fabsf(all[i]) : largest;
  return largest;
}

// Gives the largest magnitude of the keys that were compared.
static float check_panels(const seriatim_geometry* geometry, int64_t u) {
  static float pooled_keys[kMostTokens / kGroup * kIndexDim];
  const int64_t groups = lengths[u] / kGroup;
  const seriatim_tensor weight = model_tensor(norm_weight, 1, kIndexDim, 0, 0);
  const seriatim_tensor keys = model_tensor(tokens[u].index_keys, 2, lengths[u], kIndexDim, 0);
  const seriatim_tensor pooled = model_tensor(pooled_keys, 2, groups, kIndexDim, 0);
  char* at = (char*)packed;
  int64_t bytes = -1;
  while ((uintptr_t)at % 64 != 0) ++at;
  if (groups == 0) return 0.0f;
  CHECK_OK(seriatim_pool_keys(geometry, &weight, &keys, kAnchor, NULL, &pooled, &error));
  CHECK_OK(seriatim_panels_bytes(geometry, groups, &bytes, &error));
  CHECK_OK(seriatim_pack_panels(geometry, &pooled, at, bytes, &error));
  CHECK(memcmp(at, panels[u], (size_t)bytes) == 0);
  return largest_of(pooled_keys, groups * kIndexDim);
}

// All users in every call, a few tokens more each time.
static void in_pieces(const seriatim_geometry* geometry, seriatim_executor* executor) {
  seriatim_pooler* pooler = NULL;
  seriatim_pool_ask asks[kUsers];
  int64_t held[kUsers] = {0, 0, 0};
  float largest = 0.0f, wanted = 0.0f;
  int64_t u, round;
  memset(panels, 0, sizeof panels);
  CHECK_OK(seriatim_pooler_create(geometry, norm_weight, kIndexDim, executor, &pooler, &error));
  for (round = 0; round < 6; ++round) {
    float max_abs = -1.0f;
    for (u = 0; u < kUsers; ++u) {
      const int64_t pooled = held[u] / kGroup;
      held[u] = round == 5 ? lengths[u] : lengths[u] * round / 6;
      asks[u] = ask_of(u, held[u], pooled);
    }
    CHECK_OK(seriatim_pooler_pool(pooler, asks, kUsers, &max_abs, &error));
    CHECK(max_abs >= 0.0f);
    largest = max_abs > largest ? max_abs : largest;
  }
  for (u = 0; u < kUsers; ++u) {
    const float of_user = check_panels(geometry, u);
    wanted = of_user > wanted ? of_user : wanted;
  }
  CHECK(wanted > 0.0f && largest == wanted);
  CHECK_OK(seriatim_pooler_pool(pooler, NULL, 0, NULL, &error));
  seriatim_pooler_destroy(pooler);
}

static void what_is_refused(const seriatim_geometry* geometry) {
  struct newer {
    seriatim_pool_ask known;
    int64_t unknown;
  } newer[2];
  seriatim_pooler* pooler = NULL;
  seriatim_pool_ask asks[2];
  float max_abs = 3.0f;
  float kept;
  CHECK_FAILS(seriatim_pooler_create(geometry, norm_weight, kIndexDim - 1, NULL, &pooler, &error),
              SERIATIM_INVALID_ARGUMENT, "norm_weight");
  CHECK_FAILS(seriatim_pooler_create(geometry, NULL, kIndexDim, NULL, &pooler, &error), SERIATIM_INVALID_ARGUMENT,
              "norm_weight");
  CHECK_FAILS(seriatim_pooler_create(NULL, NULL, 0, NULL, &pooler, &error), SERIATIM_INVALID_ARGUMENT, "geometry");
  CHECK_FAILS(seriatim_pooler_create(geometry, NULL, 0, NULL, NULL, &error), SERIATIM_INVALID_ARGUMENT, "pooler");
  CHECK_OK(seriatim_pooler_create(geometry, norm_weight, kIndexDim, NULL, &pooler, &error));
  asks[0] = ask_of(0, lengths[0], 0);
  asks[1] = ask_of(2, lengths[2], 0);
  CHECK_FAILS(seriatim_pooler_pool(NULL, asks, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "pooler");
  CHECK_FAILS(seriatim_pooler_pool(pooler, NULL, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, -1, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  asks[1].tokens = kMostTokens + 1;
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "raw");
  CHECK(error.ask == 1 && error.row == -1);
  asks[1] = ask_of(2, lengths[2], 0);
  asks[1].panels.shape[0] = 1;
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "panels");
  CHECK(error.ask == 1);
  asks[1] = ask_of(2, lengths[2], 0);
  asks[1].raw.data = NULL;
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "raw");
  CHECK(error.ask == 1);
  asks[1] = ask_of(2, lengths[2], 0);
  asks[1].struct_size += 8;
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, 2, &max_abs, &error), SERIATIM_INVALID_ARGUMENT, "asks");
  asks[1] = ask_of(2, lengths[2], 0);
  kept = raw[2][kSlot + 70][1];
  raw[2][kSlot + 70][1] = INFINITY;
  CHECK_FAILS(seriatim_pooler_pool(pooler, asks, 2, &max_abs, &error), SERIATIM_NOT_FINITE, "raw");
  CHECK(error.ask == 1 && error.index == 16);
  raw[2][kSlot + 70][1] = kept;
  CHECK(max_abs == 3.0f);

  memset(newer, 0, sizeof newer);  // asks of a later version lie further apart
  newer[0].known = asks[0];
  newer[1].known = asks[1];
  newer[0].known.struct_size = newer[1].known.struct_size = sizeof newer[0];
  CHECK_OK(seriatim_pooler_pool(pooler, &newer[0].known, 2, &max_abs, &error));
  newer[1].unknown = 1;
  CHECK_FAILS(seriatim_pooler_pool(pooler, &newer[0].known, 2, &max_abs, &error), SERIATIM_UNSUPPORTED, "asks");
  CHECK(error.ask == 1);
  seriatim_pooler_destroy(pooler);
}

int main(void) {
  seriatim_geometry* geometry;
  seriatim_executor* executor = NULL;
  seriatim_error_init(&error);
  geometry = model_geometry();
  fill_memory();
  in_pieces(geometry, NULL);
  CHECK_OK(seriatim_executor_create(2, &executor, &error));
  in_pieces(geometry, executor);
  seriatim_executor_destroy(executor);
  what_is_refused(geometry);
  seriatim_geometry_destroy(geometry);
  return checks_end();
}
