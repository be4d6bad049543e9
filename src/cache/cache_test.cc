// The promises of the cache that one sequence can show: values through pages, groups, rewinds.
#include "seriatim/cache.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <tuple>

#include "support/cache.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

constexpr std::int64_t kLayers = 2;

// Every group size against every kind of geometry that changes what a page holds.
struct Kind {
  const char* name;
  void (*change)(GeometryOptions&);
};

void plain(GeometryOptions&) {}
void bf16(GeometryOptions& o) { o.kv_dtype = o.index_dtype = DType::kBf16; }
void f16_values_alias_keys(GeometryOptions& o) {
  o.kv_dtype = DType::kF16;
  o.values_alias_keys = true;
}
void three_coordinates(GeometryOptions& o) { o.rope_axes = {1, 2}; }
void finished_keys(GeometryOptions& o) {
  o.group_tokens = 1;
  o.budget_tokens = 8;
  o.pooling = Pooling::kNone;
}

constexpr Kind kKinds[] = {{"Plain", plain},
                           {"Bf16", bf16},
                           {"F16ValuesAliasKeys", f16_values_alias_keys},
                           {"ThreeCoordinates", three_coordinates},
                           {"FinishedKeys", finished_keys}};

class CacheOfAnyKind : public ::testing::TestWithParam<std::tuple<Kind, std::int64_t, std::int64_t>> {
 protected:
  const std::int64_t anchor_ = std::get<2>(GetParam());
  const Geometry geometry_ = [] {
    GeometryOptions options = small_options(std::get<1>(GetParam()));
    std::get<0>(GetParam()).change(options);
    return admit(options);
  }();
  const std::int64_t page_tokens_ = 16 * geometry_.group_tokens();
  const CacheOptions options_ = cache_options(kLayers, 6 * page_tokens_, page_tokens_);

  std::vector<std::byte> plain_state(const std::vector<TokenId>& tokens) const {
    return plain_image(geometry_, options_, anchor_, tokens);
  }
};

std::string kind_name(const ::testing::TestParamInfo<CacheOfAnyKind::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + "_r" + std::to_string(std::get<1>(info.param)) + "_anchor" +
         std::to_string(std::get<2>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Cache, CacheOfAnyKind,
                         ::testing::Combine(::testing::ValuesIn(kKinds), ::testing::Values(1, 3, 4, 7),
                                            ::testing::Values<std::int64_t>(0, 1, 3, 1'000'003)),
                         kind_name);

TEST_P(CacheOfAnyKind, EveryCountOfTokensReadsBackThroughPages) {
  auto cache = make_cache(geometry_, options_);
  const std::int64_t most = 2 * page_tokens_ + 3;
  for (std::int64_t count = 0; count <= most; count += count < 20 ? 1 : 13) {
    const SequenceId sequence = *cache->add(anchor_);
    append(*cache, sequence, ids(100, count));
    const auto expected = plain_state(ids(100, count));
    ASSERT_GE(static_cast<std::int64_t>(expected.size()), count * 2 * 6 * 2);
    EXPECT_EQ(image(*cache, sequence), expected) << count;
    ASSERT_TRUE(cache->remove(sequence).ok());
  }
}

// sglang#36497, pypto-lib#592: chunks of another size gave another state.
TEST_P(CacheOfAnyKind, ChunksGiveTheStateOfOneAppend) {
  auto cache = make_cache(geometry_, options_);
  const std::int64_t count = page_tokens_ + 2 * geometry_.group_tokens() + 1;
  const auto expected = plain_state(ids(7, count));
  for (const std::int64_t chunk :
       {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{5}, std::int64_t{64}, count}) {
    const SequenceId sequence = *cache->add(anchor_);
    for (std::int64_t done = 0; done < count; done += chunk) {
      append(*cache, sequence, ids(7 + static_cast<TokenId>(done), std::min(chunk, count - done)));
    }
    EXPECT_EQ(image(*cache, sequence), expected) << "chunks of " << chunk;
    ASSERT_TRUE(cache->remove(sequence).ok());
  }
}

// Rapid-MLX#3090, omlx#3428: after a rewind into a group the old group's index key stayed. Every n mod r.
TEST_P(CacheOfAnyKind, ARewindIntoAGroupThenOtherTokensEqualsAFreshCache) {
  auto cache = make_cache(geometry_, options_);
  const std::int64_t count = page_tokens_ + 2 * geometry_.group_tokens();
  for (std::int64_t kept = count - 2 * geometry_.group_tokens() - 2; kept <= count; ++kept) {
    const SequenceId sequence = *cache->add(anchor_);
    append(*cache, sequence, ids(1, count));
    ASSERT_TRUE(cache->truncate(sequence, kept).ok());
    std::vector<TokenId> tokens = ids(1, kept);
    EXPECT_EQ(image(*cache, sequence), plain_state(tokens)) << kept;
    append(*cache, sequence, ids(9000, 2 * geometry_.group_tokens() + 1));
    for (const TokenId token : ids(9000, 2 * geometry_.group_tokens() + 1)) tokens.push_back(token);
    EXPECT_EQ(image(*cache, sequence), plain_state(tokens)) << kept;
    ASSERT_TRUE(cache->remove(sequence).ok());
  }
}

TEST_P(CacheOfAnyKind, AnOldSnapshotDoesNotChangeByABit) {
  auto cache = make_cache(geometry_, options_);
  const SequenceId sequence = *cache->add(anchor_);
  const std::int64_t count = page_tokens_ + geometry_.group_tokens() + 1;
  append(*cache, sequence, ids(1, count));
  const Snapshot before = *cache->snapshot(sequence);
  const auto expected = plain_state(ids(1, count));
  ASSERT_EQ(image(before), expected);
  for (const std::int64_t kept : {count - 1, page_tokens_ - 1, std::int64_t{3}}) {
    ASSERT_TRUE(cache->truncate(sequence, kept).ok());
    append(*cache, sequence, ids(static_cast<TokenId>(10'000 * kept), count - kept));
    EXPECT_EQ(image(before), expected) << kept;
    EXPECT_NE(image(*cache, sequence), expected) << kept;
  }
  ASSERT_TRUE(cache->reset(sequence, 5).ok());
  append(*cache, sequence, ids(77, count));
  EXPECT_EQ(image(before), expected);
}

TEST(Cache, CoordinatesMustAgreeBetweenLayers) {
  GeometryOptions options = small_options();
  options.rope_axes = {0, 1};
  const Geometry geometry = admit(options);
  auto cache = make_cache(geometry, cache_options(2, 64));
  const SequenceId sequence = *cache->add();
  auto transaction = cache->begin();
  ASSERT_TRUE(transaction->append(sequence, 0, make_batch(geometry, 0, 0, ids(1, 5)).view).ok());
  Batch other = make_batch(geometry, 1, 0, ids(1, 5));
  ++other.coordinates[3][1];
  EXPECT_EQ(transaction->append(sequence, 1, other.view).place().row, 3);
  --other.coordinates[3][1];
  EXPECT_TRUE(transaction->append(sequence, 1, other.view).ok());
  other.view.coordinates = nullptr;
  other.view.first_position = 5;
  EXPECT_EQ(transaction->append(sequence, 1, other.view).argument(), "coordinates");
}

TEST(Cache, StagedTokensAreSeenByTheTransactionAndByNobodyElse) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(2, 256, 64);
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add();
  append(*cache, sequence, ids(1, 62));
  const auto before = image(*cache, sequence);
  auto transaction = cache->begin();
  ASSERT_TRUE(transaction.ok());
  for (std::int64_t l = 0; l < 2; ++l) {
    ASSERT_TRUE(transaction->append(sequence, l, make_batch(geometry, l, 62, ids(63, 10)).view).ok());
    EXPECT_EQ(image(*cache, sequence), before);
  }
  std::vector<std::byte> staged = image(*transaction->layer(sequence, 0));
  const auto second = image(*transaction->layer(sequence, 1));
  staged.insert(staged.end(), second.begin(), second.end());
  EXPECT_EQ(staged, plain_image(geometry, options, 0, ids(1, 72)));
  EXPECT_EQ(image(*cache, sequence), before);
  ASSERT_TRUE(transaction->commit().ok());
  EXPECT_EQ(image(*cache, sequence), staged);
}

TEST(Cache, ARollbackGivesBackEveryPageAndSlot) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 3 * 64, 64);
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add();
  append(*cache, sequence, ids(1, 40));
  const auto before = image(*cache, sequence);
  const std::int64_t held = cache->bytes().keys_values;
  for (int round = 0; round < 3; ++round) {
    auto transaction = cache->begin();
    ASSERT_TRUE(transaction->append(sequence, 0, make_batch(geometry, 0, 40, ids(900, 152)).view).ok());
    EXPECT_EQ(cache->bytes().keys_values, 3 * held);
    if (round == 0) transaction->rollback();  // otherwise the destructor does it
  }
  EXPECT_EQ(cache->bytes().keys_values, held);
  EXPECT_EQ(image(*cache, sequence), before);
  append(*cache, sequence, ids(41, 152));
  EXPECT_EQ(image(*cache, sequence), plain_image(geometry, options, 0, ids(1, 192)));
}

TEST(Cache, ASnapshotOutlivesItsCache) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 64);
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add(2);
  append(*cache, sequence, ids(1, 30));
  Snapshot snapshot = *cache->snapshot(sequence);
  cache.reset();
  EXPECT_EQ(image(snapshot), plain_image(geometry, options, 2, ids(1, 30)));
}

// vllm#52109, MSLK#257: byte offsets past 2^31 and 2^32 in sparse mappings; the tokens' bytes must come from the right
// places.
TEST(Cache, StridesWhoseByteOffsetsPassFourGigabytes) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 64);
  constexpr std::int64_t kStride = (std::int64_t{3} << 30) + 4;
  constexpr std::int64_t kBytes = 4 * kStride;
  void* region = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(region, MAP_FAILED);
  Batch batch = make_batch(geometry, 0, 0, ids(1, 4));
  for (std::int64_t t = 0; t < 4; ++t) {
    std::memcpy(static_cast<std::byte*>(region) + t * kStride, batch.view.keys.at(t), 12 * 4);
    std::memcpy(static_cast<std::byte*>(region) + t * kStride + 1024, batch.view.index_keys.at(t), 8 * 4);
  }
  batch.view.keys.data = static_cast<std::byte*>(region);
  batch.view.keys.stride_bytes[0] = kStride;
  batch.view.index_keys.data = static_cast<std::byte*>(region) + 1024;
  batch.view.index_keys.stride_bytes[0] = kStride;
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add();
  auto transaction = cache->begin();
  ASSERT_TRUE(transaction->append(sequence, 0, batch.view).ok());
  ASSERT_TRUE(transaction->commit().ok());
  munmap(region, kBytes);
  EXPECT_EQ(image(*cache, sequence), plain_image(geometry, options, 0, ids(1, 4)));
}

TEST(Cache, ElementsMayLieApart) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 64);
  Batch batch = make_batch(geometry, 0, 0, ids(1, 9));
  std::vector<std::byte> apart(batch.keys.size() * 3);
  for (std::size_t i = 0; i < batch.keys.size() / 4; ++i) std::memcpy(&apart[12 * i], &batch.keys[4 * i], 4);
  batch.view.keys.data = apart.data();
  for (std::int64_t& stride : batch.view.keys.stride_bytes) stride *= 3;
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add();
  auto transaction = cache->begin();
  ASSERT_TRUE(transaction->append(sequence, 0, batch.view).ok());
  ASSERT_TRUE(transaction->commit().ok());
  EXPECT_EQ(image(*cache, sequence), plain_image(geometry, options, 0, ids(1, 9)));
}

// Hands out heap memory and keeps count.
class CountingAllocator final : public PageAllocator {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    held += bytes;
    return heap_page_allocator().allocate(bytes);
  }
  void release(std::byte* memory, std::int64_t bytes) noexcept override {
    held -= bytes;
    heap_page_allocator().release(memory, bytes);
  }
  std::int64_t held = 0;
};

TEST(Cache, BytesByOwnerSumToWhatTheAllocatorHandedOut) {
  CountingAllocator allocator;
  GeometryOptions geometry_options = small_options();
  geometry_options.rope_axes = {0, 1};
  const Geometry geometry = admit(geometry_options);
  CacheOptions options = cache_options(3, 512, 64);
  options.allocator = &allocator;
  auto cache = make_cache(geometry, options);
  EXPECT_EQ(cache->bytes().pages(), 0);
  const SequenceId sequence = *cache->add();
  append(*cache, sequence, ids(1, 130));
  const CacheBytes full = cache->bytes();
  EXPECT_EQ(full.keys_values, 3 /*pages*/ * 3 /*layers*/ * 64 * 2 * (6 + 5) * 4);
  EXPECT_EQ(full.raw_index_keys, 3 * 3 * 64 * 8 * 4);
  EXPECT_EQ(full.coordinates, 3 * 64 * 12);
  EXPECT_EQ(full.pooled_keys, 2 /*32 groups fill two pages of 16*/ * 3 * 16 * 8 * 4);
  EXPECT_EQ(full.free_pages, 0);
  EXPECT_EQ(full.pages(), allocator.held);
  ASSERT_TRUE(cache->truncate(sequence, 10).ok());
  EXPECT_EQ(cache->bytes().keys_values, full.keys_values / 3);
  EXPECT_EQ(cache->bytes().pages(), allocator.held);
  EXPECT_EQ(cache->bytes().pages(), full.pages());  // kept for reuse
  append(*cache, sequence, ids(1, 120));
  EXPECT_EQ(cache->bytes().pages(), full.pages());
  cache.reset();
  EXPECT_EQ(allocator.held, 0);
}

TEST(Cache, ALayerWithoutAnIndexKeepsKeysAndValuesAlone) {
  const Geometry geometry = admit(small_options());
  CacheOptions options = cache_options(3, 256, 64);
  options.layers[1].indexed = false;
  auto cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add(1);
  append(*cache, sequence, ids(1, 70));
  EXPECT_EQ(image(*cache, sequence), plain_image(geometry, options, 1, ids(1, 70)));
  EXPECT_EQ(cache->bytes().raw_index_keys, 2 * 2 * 64 * 8 * 4);
  auto transaction = cache->begin();
  const Batch batch = make_batch(geometry, 1, 71, ids(1, 1));
  EXPECT_EQ(transaction->append(sequence, 1, batch.view).argument(), "index_keys");
}

}  // namespace
}  // namespace seriatim
