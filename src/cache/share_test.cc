// The promises of the cache that take two sequences: forks, copies, evicted prefixes, speculation, capacity.
#include <gtest/gtest.h>

#include <limits>

#include "seriatim/cache.hpp"
#include "support/cache.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<TokenId> part(const std::vector<TokenId>& tokens, std::int64_t first, std::int64_t count) {
  return {tokens.begin() + first, tokens.begin() + first + count};
}

class CacheShares : public ::testing::TestWithParam<std::int64_t> {
 protected:
  CacheShares() : geometry_(admit(small_options(GetParam()))), page_tokens_(16 * GetParam()) {}

  void expect(SequenceId sequence, std::int64_t anchor, const std::vector<TokenId>& tokens) {
    EXPECT_EQ(image(*cache_, sequence), plain_image(geometry_, options_, anchor, tokens))
        << "sequence " << sequence << ", " << tokens.size() << " tokens from " << anchor;
  }

  const Geometry geometry_;
  const std::int64_t page_tokens_;
  const CacheOptions options_ = cache_options(2, 12 * page_tokens_, page_tokens_);
  const std::unique_ptr<Cache> cache_ = make_cache(geometry_, options_);
};

INSTANTIATE_TEST_SUITE_P(Groups, CacheShares, ::testing::Values(1, 3, 4, 7));

// llama.cpp#29166: two users at the same positions of one cache with different keys.
TEST_P(CacheShares, TwoSequencesAreEachAsIfAlone) {
  const SequenceId a = *cache_->add();
  const SequenceId b = *cache_->add();
  for (std::int64_t done = 0; done < page_tokens_ + 5; ++done) {
    append(*cache_, a, ids(1000 + static_cast<TokenId>(done), 1));
    append(*cache_, b, ids(2000 + static_cast<TokenId>(done), 1));
  }
  expect(a, 0, ids(1000, page_tokens_ + 5));
  expect(b, 0, ids(2000, page_tokens_ + 5));
}

// llama.cpp#27941: index keys and pooled keys must travel with keys and values, whichever writes first.
TEST_P(CacheShares, AForkAndItsOriginGoOnApart) {
  for (const std::int64_t count :
       {std::int64_t{0}, std::int64_t{5}, page_tokens_ - 1, page_tokens_, page_tokens_ + 2}) {
    const SequenceId a = *cache_->add(3);
    append(*cache_, a, ids(1, count));
    const SequenceId b = *cache_->fork(a);
    expect(b, 3, ids(1, count));
    append(*cache_, a, ids(100, 9));
    append(*cache_, b, ids(200, 11));
    append(*cache_, a, ids(300, 2));
    expect(a, 3, joined(joined(ids(1, count), ids(100, 9)), ids(300, 2)));
    expect(b, 3, joined(ids(1, count), ids(200, 11)));
    ASSERT_TRUE(cache_->remove(a).ok());
    append(*cache_, b, ids(400, 3));
    expect(b, 3, joined(joined(ids(1, count), ids(200, 11)), ids(400, 3)));
    ASSERT_TRUE(cache_->remove(b).ok());
  }
  EXPECT_EQ(cache_->bytes().keys_values, 0);
}

TEST_P(CacheShares, AForkCostsOnePageWhenBothWrite) {
  const SequenceId a = *cache_->add();
  append(*cache_, a, ids(1, 3 * page_tokens_ + 2));
  const std::int64_t four_pages = cache_->bytes().keys_values;
  const SequenceId b = *cache_->fork(a);
  EXPECT_EQ(cache_->bytes().keys_values, four_pages);
  append(*cache_, a, ids(70, 1));
  EXPECT_EQ(cache_->bytes().keys_values, four_pages);  // the first writer goes on in place
  append(*cache_, b, ids(80, 1));
  EXPECT_EQ(cache_->bytes().keys_values, four_pages / 4 * 5);
}

TEST_P(CacheShares, AnEvictedPrefixLeavesWhatAFreshCacheWouldHold) {
  const std::int64_t count = 2 * page_tokens_ + 3;
  for (std::int64_t evicted = 0; evicted <= count; evicted += evicted < 2 * GetParam() ? 1 : 5) {
    const SequenceId a = *cache_->add(10);
    append(*cache_, a, ids(1, count));
    ASSERT_TRUE(cache_->evict_prefix(a, evicted).ok());
    const auto left = part(ids(1, count), evicted, count - evicted);
    expect(a, 10 + evicted, left);
    append(*cache_, a, ids(500, 2 * GetParam() + 1));
    expect(a, 10 + evicted, joined(left, ids(500, 2 * GetParam() + 1)));
    ASSERT_TRUE(cache_->remove(a).ok());
  }
}

TEST_P(CacheShares, AWindowThatSlidesForEverStaysWithinItsPages) {
  const SequenceId a = *cache_->add();
  std::vector<TokenId> tokens;
  TokenId next = 1;
  std::int64_t anchor = 0;
  for (int round = 0; round < 100; ++round) {
    append(*cache_, a, ids(next, 7));
    tokens = joined(tokens, ids(next, 7));
    next += 7;
    if (static_cast<std::int64_t>(tokens.size()) > page_tokens_) {
      ASSERT_TRUE(cache_->evict_prefix(a, 6 + round % 2).ok());
      tokens.erase(tokens.begin(), tokens.begin() + 6 + round % 2);
      anchor += 6 + round % 2;
    }
    expect(a, anchor, tokens);
  }
  EXPECT_LE(cache_->bytes().keys_values / (2 * page_tokens_ * 2 * (6 + 5) * 4), 3 + 50 / page_tokens_);
}

TEST_P(CacheShares, ACopiedRangeEqualsTheSameTokensAppended) {
  const std::int64_t count = 2 * page_tokens_ + 6;
  const SequenceId a = *cache_->add(2);
  append(*cache_, a, ids(1, count));
  for (const std::int64_t skipped : {std::int64_t{0}, std::int64_t{1}, GetParam(), page_tokens_ + 1}) {
    for (const std::int64_t copied : {std::int64_t{0}, std::int64_t{1}, 2 * GetParam() + 1, count - skipped}) {
      const auto range = part(ids(1, count), skipped, copied);
      const SequenceId empty = *cache_->add(2 + skipped);
      ASSERT_TRUE(cache_->copy(a, 2 + skipped, copied, empty).ok());
      expect(empty, 2 + skipped, range);
      append(*cache_, empty, ids(900, 3));
      expect(empty, 2 + skipped, joined(range, ids(900, 3)));
      if (skipped > 0) {
        const SequenceId begun = *cache_->add(2);
        append(*cache_, begun, ids(7000, skipped));
        ASSERT_TRUE(cache_->copy(a, 2 + skipped, copied, begun).ok());
        expect(begun, 2, joined(ids(7000, skipped), range));
        ASSERT_TRUE(cache_->remove(begun).ok());
      }
      ASSERT_TRUE(cache_->remove(empty).ok());
    }
  }
  expect(a, 2, ids(1, count));
}

TEST_P(CacheShares, ASpeculativeBatchKeepsItsPrefixWhereItLies) {
  const SequenceId a = *cache_->add();
  append(*cache_, a, ids(1, page_tokens_ - 3));
  for (std::int64_t kept = 0; kept <= 8; ++kept) {
    const SequenceId b = *cache_->fork(a);
    auto transaction = cache_->begin();
    for (std::int64_t l = 0; l < 2; ++l) {
      ASSERT_TRUE(transaction->append(b, l, make_batch(geometry_, l, page_tokens_ - 3, ids(50, 8)).view).ok());
    }
    const std::byte* where = transaction->layer(b, 1)->key(page_tokens_ - 3, 0);
    ASSERT_TRUE(transaction->commit_prefix(kept).ok());
    expect(b, 0, joined(ids(1, page_tokens_ - 3), ids(50, kept)));
    if (kept > 0) {
      EXPECT_EQ(cache_->snapshot(b)->layer(1).key(page_tokens_ - 3, 0), where);
    }
    append(*cache_, b, ids(60, 9));
    expect(b, 0, joined(joined(ids(1, page_tokens_ - 3), ids(50, kept)), ids(60, 9)));
    ASSERT_TRUE(cache_->remove(b).ok());
  }
}

TEST_P(CacheShares, AFailedAppendGivesBackItsPagesAtOnce) {
  const SequenceId a = *cache_->add();
  append(*cache_, a, ids(1, 5));
  const std::int64_t pages = cache_->bytes().keys_values;
  auto transaction = cache_->begin();
  ASSERT_TRUE(transaction->append(a, 0, make_batch(geometry_, 0, 5, ids(6, 2)).view).ok());
  Batch batch = make_batch(geometry_, 0, 7, ids(90, 3 * page_tokens_));
  batch.index_keys.back() = batch.index_keys[batch.index_keys.size() - 2] = std::byte{0xff};
  EXPECT_EQ(transaction->append(a, 0, batch.view).code(), Code::kNotFinite);
  EXPECT_EQ(cache_->bytes().keys_values, pages);
}

// A rollback leaves no trace in a page that a fork holds too.
TEST_P(CacheShares, AfterARollbackTheFirstWriterStillGoesOnInPlace) {
  const SequenceId a = *cache_->add();
  append(*cache_, a, ids(1, page_tokens_ + 2));
  const SequenceId b = *cache_->fork(a);
  ASSERT_TRUE(cache_->truncate(b, page_tokens_ + 1).ok());  // a state of its own, in the same page
  const std::int64_t pages = cache_->bytes().keys_values;
  {
    auto transaction = cache_->begin();
    ASSERT_TRUE(transaction->append(a, 0, make_batch(geometry_, 0, page_tokens_ + 2, ids(90, 3)).view).ok());
  }
  append(*cache_, a, ids(70, 2));
  EXPECT_EQ(cache_->bytes().keys_values, pages);
  expect(a, 0, joined(ids(1, page_tokens_ + 2), ids(70, 2)));
  expect(b, 0, ids(1, page_tokens_ + 1));
}

TEST_P(CacheShares, EachSequenceOfABatchMayKeepAnotherCount) {
  const SequenceId a = *cache_->add();
  const SequenceId b = *cache_->add(5);
  auto transaction = cache_->begin();
  for (std::int64_t l = 0; l < 2; ++l) {
    ASSERT_TRUE(transaction->append(a, l, make_batch(geometry_, l, 0, ids(10, 6)).view).ok());
    ASSERT_TRUE(transaction->append(b, l, make_batch(geometry_, l, 5, ids(20, 6)).view).ok());
  }
  EXPECT_EQ(transaction->keep(a, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(transaction->keep(99, 1).code(), Code::kNotFound);
  ASSERT_TRUE(transaction->keep(a, 2).ok());
  ASSERT_TRUE(transaction->keep(b, 5).ok());
  for (std::int64_t l = 0; l < 2; ++l) {  // the step goes on after what was kept
    ASSERT_TRUE(transaction->append(a, l, make_batch(geometry_, l, 2, ids(30, 1)).view).ok());
  }
  ASSERT_TRUE(transaction->commit().ok());
  expect(a, 0, joined(ids(10, 2), ids(30, 1)));
  expect(b, 5, ids(20, 5));
}

TEST_P(CacheShares, OneLayerMayForgetWhatIsStagedAndKeepsItWhereMoreIsAsked) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const SequenceId a = *cache_->add();
  append(*cache_, a, ids(1, 3));
  auto transaction = cache_->begin();
  for (std::int64_t l = 0; l < 2; ++l)
    ASSERT_TRUE(transaction->append(a, l, make_batch(geometry_, l, 3, ids(10, 6)).view).ok());
  EXPECT_EQ(transaction->keep_layer(a, 1, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(transaction->keep_layer(a, 2, 1).code(), Code::kInvalidArgument);
  ASSERT_TRUE(transaction->keep_layer(a, 1, 4).ok());
  ASSERT_TRUE(transaction->keep_layer(a, 1, kMost).ok());
  EXPECT_EQ(transaction->commit().code(), Code::kInvalidArgument) << "the layers are at different frontiers";
  ASSERT_TRUE(transaction->append(a, 1, make_batch(geometry_, 1, 7, ids(14, 2)).view).ok());
  ASSERT_TRUE(transaction->commit().ok());
  expect(a, 0, joined(ids(1, 3), ids(10, 6)));
}

TEST_P(CacheShares, AFailureInTheLastLayerLeavesEverySequenceAsItWas) {
  const SequenceId a = *cache_->add();
  const SequenceId b = *cache_->fork(a);
  append(*cache_, a, ids(1, 10));
  append(*cache_, b, ids(40, 4));
  {
    auto transaction = cache_->begin();
    for (std::int64_t l = 0; l < 2; ++l) {
      ASSERT_TRUE(transaction->append(a, l, make_batch(geometry_, l, 10, ids(90, 30)).view).ok());
      Batch batch = make_batch(geometry_, l, 4, ids(95, 30));
      if (l == 1) batch.index_keys.back() = batch.index_keys[batch.index_keys.size() - 2] = std::byte{0xff};
      EXPECT_EQ(transaction->append(b, l, batch.view).ok(), l == 0);
    }
    EXPECT_FALSE(transaction->commit().ok());
  }
  expect(a, 0, ids(1, 10));
  expect(b, 0, ids(40, 4));
}

TEST_P(CacheShares, SlotsAreReusedWithoutATrace) {
  for (int round = 0; round < 20; ++round) {
    const SequenceId a = *cache_->add(round);
    const auto tokens = ids(static_cast<TokenId>(1000 * round), 3 * page_tokens_ + round);
    append(*cache_, a, tokens);
    expect(a, round, tokens);
    ASSERT_TRUE(cache_->remove(a).ok());
  }
  const std::int64_t most_pages = (3 * page_tokens_ + 19 + page_tokens_ - 1) / page_tokens_;
  EXPECT_LE(cache_->bytes().pages(), most_pages * (2 * page_tokens_ * (2 * 11 + 8) * 4 + 2 * 16 * 8 * 4 + 64 * 8));
}

TEST(CacheCapacity, IsInWholePagesAndSharedPagesCountOnce) {
  const Geometry geometry = admit(small_options());
  auto cache = make_cache(geometry, cache_options(1, 2 * 64 - 1, 64));  // rounded up to two pages
  const SequenceId a = *cache->add();
  append(*cache, a, ids(1, 128));
  EXPECT_EQ(try_append(*cache, a, ids(1, 1)).code(), Code::kCapacity);
  const SequenceId b = *cache->fork(a);
  EXPECT_EQ(try_append(*cache, b, ids(1, 1)).code(), Code::kCapacity);
  ASSERT_TRUE(cache->truncate(b, 64).ok());
  EXPECT_EQ(try_append(*cache, b, ids(1, 1)).code(), Code::kCapacity);
  ASSERT_TRUE(cache->truncate(a, 64).ok());
  append(*cache, b, ids(1, 64));
  EXPECT_EQ(image(*cache, a).size() * 2 - 24, image(*cache, b).size());
}

TEST(CacheCapacity, AFullCacheCanEvictAnyPrefix) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(2, 4 * 64, 64);
  auto cache = make_cache(geometry, options);
  const SequenceId a = *cache->add();
  append(*cache, a, ids(0, 256));
  EXPECT_EQ(try_append(*cache, a, ids(0, 1)).code(), Code::kCapacity);
  ASSERT_TRUE(cache->evict_prefix(a, 65).ok());
  append(*cache, a, ids(256, 64));
  EXPECT_EQ(image(*cache, a), plain_image(geometry, options, 65, ids(65, 255)));
}

TEST(CacheCapacity, InBytesIsNeverExceeded) {
  const Geometry geometry = admit(small_options());
  constexpr std::int64_t kTokenPage = 64 * (2 * 11 + 8) * 4;
  constexpr std::int64_t kPooledPage = 16 * 8 * 4;
  for (const std::int64_t spare : {0, 1, 100}) {
    CacheOptions options = cache_options(1, 0, 64);
    options.capacity_bytes = 3 * (kTokenPage + 2 * kPooledPage) + spare;
    auto cache = make_cache(geometry, options);
    const SequenceId a = *cache->add();
    append(*cache, a, ids(1, 3 * 64));
    EXPECT_EQ(try_append(*cache, a, ids(1, 1)).code(), Code::kCapacity);
    ASSERT_TRUE(cache->evict_prefix(a, 1).ok());
    EXPECT_LE(cache->bytes().pages(), options.capacity_bytes);
  }
  CacheOptions both = cache_options(1, 64, 64);
  both.capacity_bytes = 1;
  EXPECT_EQ(Cache::create(geometry, both).status().argument(), "capacity_bytes");
}

TEST(CacheCapacity, ReservedMemoryNeedsNoMoreAndIsAllInTheCallersRegion) {
  const Geometry geometry = admit(small_options());
  std::vector<std::byte> region(std::size_t{1} << 16);
  RegionAllocator allocator(std::span<std::byte>(region).subspan(1));  // any alignment
  CacheOptions options = cache_options(1, 3 * 64, 64);
  options.reserve = true;
  options.allocator = &allocator;
  auto cache = make_cache(geometry, options);
  const std::int64_t held = cache->bytes().pages();
  EXPECT_EQ(held, cache->bytes().free_pages);
  EXPECT_EQ(allocator.allocate(std::int64_t{1} << 16), nullptr);
  const SequenceId a = *cache->add();
  append(*cache, a, ids(1, 3 * 64));
  EXPECT_EQ(cache->bytes().pages(), held);
  const std::byte* key = cache->snapshot(a)->layer(0).key(0, 0);
  EXPECT_TRUE(key > region.data() && key < region.data() + region.size());
  EXPECT_EQ(image(*cache, a), plain_image(geometry, options, 0, ids(1, 3 * 64)));
  ASSERT_TRUE(cache->remove(a).ok());
  cache->trim();
  EXPECT_EQ(cache->bytes().pages(), 0);
  const SequenceId b = *cache->add();  // released memory is handed out again
  append(*cache, b, ids(1, 3 * 64));
  cache.reset();
  options.capacity_tokens = std::int64_t{1} << 20;
  EXPECT_EQ(Cache::create(geometry, options).status().code(), Code::kOutOfMemory);
}

TEST(CacheCapacity, WithoutAnyIndexThereAreNoPooledPages) {
  const Geometry geometry = admit(small_options());
  std::vector<std::byte> region(std::size_t{1} << 16);
  RegionAllocator allocator(region);
  CacheOptions options = cache_options(2, 2 * 64, 64);
  options.layers[0].indexed = options.layers[1].indexed = false;
  options.reserve = true;
  options.allocator = &allocator;
  auto cache = make_cache(geometry, options);
  EXPECT_EQ(cache->bytes().pages(), 2 /*pages*/ * 2 /*layers*/ * 64 * 2 * 11 * 4);
  const SequenceId a = *cache->add(4);
  append(*cache, a, ids(1, 100));
  ASSERT_TRUE(cache->evict_prefix(a, 7).ok());
  append(*cache, a, ids(101, 9));
  EXPECT_EQ(image(*cache, a), plain_image(geometry, options, 11, ids(8, 102)));
  EXPECT_EQ(cache->bytes().pooled_keys, 0);
  EXPECT_EQ(cache->bytes().raw_index_keys, 0);
}

TEST(CacheRefusesToShare, WhatIsNotThere) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 256, 64);
  auto cache = make_cache(geometry, options);
  const SequenceId a = *cache->add(5);
  append(*cache, a, ids(1, 20));
  const SequenceId b = *cache->add(9);
  EXPECT_EQ(cache->fork(77).status().code(), Code::kNotFound);
  EXPECT_EQ(cache->evict_prefix(77, 0).code(), Code::kNotFound);
  EXPECT_EQ(cache->evict_prefix(a, 21).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->evict_prefix(a, -1).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(77, 9, 1, b).code(), Code::kNotFound);
  EXPECT_EQ(cache->copy(a, 9, 1, 77).code(), Code::kNotFound);
  EXPECT_EQ(cache->copy(a, 4, 1, b).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(a, 9, 17, b).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(a, 9, -1, b).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(a, 9, std::int64_t{1} << 62, b).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(a, std::int64_t{1} << 62, 1, b).code(), Code::kInvalidArgument);
  EXPECT_EQ(cache->copy(a, 10, 1, b).code(), Code::kNotContiguous);
  EXPECT_EQ(image(*cache, a), plain_image(geometry, options, 5, ids(1, 20)));
  EXPECT_EQ(image(*cache, b), plain_image(geometry, options, 9, {}));
}

}  // namespace
}  // namespace seriatim
