// A cache of the index alone, beside keys and values that somebody else keeps. What its states are is shown by the
// random programs of cache_program_test.
#include <gtest/gtest.h>

#include "support/bits.hpp"
#include "support/cache.hpp"
#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using testing::fails_with;

CacheOptions store_options(std::int64_t layers, std::int64_t capacity_tokens, std::int64_t page_tokens) {
  CacheOptions options = cache_options(layers, capacity_tokens, page_tokens);
  options.index_only = true;
  return options;
}

TEST(IndexStore, HoldsTheRawAndPooledKeysOfACache) {
  const Geometry geometry = admit(small_options());
  auto cache = make_cache(geometry, cache_options(2, 256, 64));
  auto store = make_cache(geometry, store_options(2, 256, 64));
  const SequenceId a = *cache->add(5);
  const SequenceId b = *store->add(5);
  append(*cache, a, ids(1, 150));
  append(*store, b, ids(1, 150));
  EXPECT_EQ(store->bytes().keys_values, 0);
  EXPECT_EQ(store->bytes().raw_index_keys, cache->bytes().raw_index_keys);
  EXPECT_EQ(store->bytes().pooled_keys, cache->bytes().pooled_keys);
  const Snapshot want = *cache->snapshot(a);
  const Snapshot got = *store->snapshot(b);
  for (std::int64_t l = 0; l < 2; ++l) {
    const LayerView view = got.layer(l);
    EXPECT_LT(view.key_offset_bytes, 0);
    EXPECT_EQ(view.pooled.groups, 37);
    EXPECT_EQ(view.pooled.max_abs, want.layer(l).pooled.max_abs);
    for (std::int64_t g = 0; g < 37; ++g) {
      for (std::int64_t i = 0; i < 8; ++i) {
        const std::int64_t at = i * PooledKeys::kPanelGroups * 4;
        ASSERT_EQ(std::memcmp(view.pooled.group(g) + at, want.layer(l).pooled.group(g) + at, 4), 0) << l << " " << g;
      }
    }
  }
}

TEST(IndexStore, FinishedKeysAreKeptInPanelsAlone) {
  GeometryOptions options = small_options(1);
  options.pooling = Pooling::kNone;
  const Geometry geometry = admit(options);
  auto store = make_cache(geometry, store_options(1, 64, 16));
  const SequenceId sequence = *store->add();
  append(*store, sequence, ids(1, 40));
  EXPECT_EQ(store->bytes().pages(), store->bytes().pooled_keys);
  EXPECT_EQ(store->bytes().pooled_keys, 3 /*pages*/ * 16 * 8 * 4);
  ASSERT_TRUE(store->evict_prefix(sequence, 17).ok());
  EXPECT_EQ(image(*store, sequence), plain_image(geometry, store_options(1, 64, 16), 17, ids(18, 23)));
  EXPECT_EQ(try_append(*store, sequence, ids(41, 100)).code(), Code::kCapacity);
}

TEST(IndexStore, RefusesKeysValuesAndLayersWithoutAnIndex) {
  const Geometry geometry = admit(small_options());
  auto store = make_cache(geometry, store_options(1, 256, 64));
  const SequenceId sequence = *store->add();
  append(*store, sequence, ids(1, 10));
  auto transaction = store->begin();
  Batch batch = make_batch(geometry, 0, 10, ids(11, 2));
  EXPECT_TRUE(fails_with(transaction->append(sequence, 0, batch.view), Code::kInvalidArgument, "keys"));
  batch.view.keys = {};
  EXPECT_TRUE(fails_with(transaction->append(sequence, 0, batch.view), Code::kInvalidArgument, "values"));
  batch.view.values = {};
  batch.view.index_keys = {};
  EXPECT_TRUE(fails_with(transaction->append(sequence, 0, batch.view), Code::kInvalidArgument, "index_keys"));
  transaction->rollback();
  EXPECT_EQ(image(*store, sequence), plain_image(geometry, store_options(1, 256, 64), 0, ids(1, 10)));
  CacheOptions options = store_options(2, 256, 64);
  options.layers[1].indexed = false;
  EXPECT_TRUE(fails_with(Cache::create(geometry, options).status(), Code::kInvalidArgument, "layers", 1));
}

TEST(IndexStore, IsNeitherSavedNorRestored) {
  const file::Folder folder;
  const Geometry geometry = admit(small_options());
  auto store = make_cache(geometry, store_options(1, 256, 64));
  append(*store, *store->add(), ids(1, 10));
  EXPECT_TRUE(fails_with(store->save(folder / "store"), Code::kUnsupported, "cache"));
  auto cache = make_cache(geometry, cache_options(1, 256, 64));
  ASSERT_TRUE(cache->save(folder / "cache").ok());
  EXPECT_TRUE(fails_with(store->restore(folder / "cache").status(), Code::kUnsupported, "cache"));
}

}  // namespace
}  // namespace seriatim
