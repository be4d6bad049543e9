// The promises of save and restore: everything comes back, and nothing that is not whole is taken.
#include "seriatim/cache_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/half.hpp"
#include "support/cache_file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

class CacheFileOf : public SavedCache {};

INSTANTIATE_TEST_SUITE_P(Kinds, CacheFileOf, ::testing::Values("Plain", "Coordinates", "Bf16", "Finished"),
                         [](const auto& param) { return std::string(param.param); });

TEST_P(CacheFileOf, EverySequenceComesBackBitForBit) {
  for (const RestoreMode mode : kModes) {
    auto other = make_cache(geometry_, options_);
    const SequenceId here = *other->add();
    auto restored = other->restore(path_, mode);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    ASSERT_EQ(restored->size(), 3u);
    const SequenceId saved[] = {a_, empty_, b_};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ((*restored)[i].saved, saved[i]);
      EXPECT_NE((*restored)[i].id, here);
      const auto expected = image(*cache_, saved[i]);
      ASSERT_GE(expected.size(), 24u);
      EXPECT_EQ(image(*other, (*restored)[i].id), expected);
      EXPECT_TRUE(other->snapshot((*restored)[i].id)->check().ok());
    }
  }
}

TEST_P(CacheFileOf, DecodingGoesOnAsIfItHadNeverStopped) {
  for (const RestoreMode mode : kModes) {
    auto other = make_cache(geometry_, options_);
    auto restored = other->restore(path_, mode);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    const SequenceId a = (*restored)[0].id;
    const SequenceId b = (*restored)[2].id;
    auto origin = make_cache(geometry_, options_);  // as cache_ was saved, built again
    const SequenceId c = *origin->add(7);
    append(*origin, c, ids(1, 100));
    append(*origin, c, ids(200, 3));
    for (TokenId step = 0; step < 90; ++step) {  // past the end of the page, both sequences in turn
      append(*other, a, ids(4000 + step, 1));
      append(*other, b, ids(6000 + step, 1));
      append(*origin, c, ids(4000 + step, 1));
    }
    EXPECT_EQ(image(*other, a), image(*origin, c));
    std::vector<TokenId> tokens = ids(67, 34);
    for (const TokenId token : ids(300, 70)) tokens.push_back(token);
    for (const TokenId token : ids(6000, 90)) tokens.push_back(token);
    EXPECT_EQ(image(*other, b), plain_image(geometry_, options_, 7 + 66, tokens));
    ASSERT_TRUE(other->evict_prefix(a, 5).ok());
    EXPECT_EQ(other->snapshot(a)->run().anchor, 12);
  }
}

TEST_P(CacheFileOf, SavingARestoredCacheGivesTheSamePagesOrFile) {
  for (const RestoreMode mode : kModes) {
    auto other = make_cache(geometry_, options_);
    ASSERT_TRUE(other->restore(path_, mode).ok());
    ASSERT_TRUE(other->save(folder_ / "again").ok());
    const auto first = read_cache_file(path_);
    const auto again = read_cache_file(folder_ / "again");
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(first->file_bytes, again->file_bytes);
    EXPECT_EQ(first->token_pages, again->token_pages);
    EXPECT_TRUE(verify_cache_file(folder_ / "again").ok());
  }
}

TEST_P(CacheFileOf, OneSequenceAloneTakesItsPagesAlone) {
  const SequenceId only[] = {b_};
  ASSERT_TRUE(cache_->save(folder_ / "one", only).ok());
  const auto info = read_cache_file(folder_ / "one");
  ASSERT_TRUE(info.ok()) << info.status().message();
  ASSERT_EQ(info->sequences.size(), 1u);
  EXPECT_EQ(info->sequences[0].id, b_);
  EXPECT_EQ(info->sequences[0].run.anchor, 73);
  EXPECT_EQ(info->sequences[0].run.tokens, 104);
  EXPECT_EQ(info->token_pages, 2);  // slots 2 .. 105 of what is left
  EXPECT_TRUE(verify_cache_file(folder_ / "one").ok());
  const SequenceId twice[] = {b_, b_};
  EXPECT_EQ(cache_->save(folder_ / "no", twice).code(), Code::kInvalidArgument);
  const SequenceId missing[] = {b_, 99};
  EXPECT_EQ(cache_->save(folder_ / "no", missing).code(), Code::kNotFound);
  EXPECT_NE(::access((folder_ / "no").c_str(), F_OK), 0);
}

TEST_P(CacheFileOf, MappedPagesTakeNoCapacityAndGoWithTheirLastHolder) {
  CacheOptions none = options_;
  none.capacity_tokens = 0;
  auto other = make_cache(geometry_, none);
  EXPECT_EQ(other->restore(path_, RestoreMode::kCopy).status().code(), Code::kCapacity);
  EXPECT_EQ(other->bytes().mapped, 0);
  auto restored = other->restore(path_, RestoreMode::kMap);
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(other->bytes().pages(), 0);
  EXPECT_GT(other->bytes().mapped, 0);
  EXPECT_EQ(try_append(*other, (*restored)[0].id, ids(1, 1)).code(), Code::kCapacity);
  std::optional<Snapshot> last = *other->snapshot((*restored)[0].id);
  for (const RestoredSequence& sequence : *restored) ASSERT_TRUE(other->remove(sequence.id).ok());
  EXPECT_GT(other->bytes().mapped, 0);
  EXPECT_EQ(image(*last), image(*cache_, a_));
  last.reset();
  EXPECT_EQ(other->bytes().mapped, 0);
}

TEST_P(CacheFileOf, AFileReplacedByRenameDoesNotDisturbAMapping) {
  auto other = make_cache(geometry_, options_);
  auto restored = other->restore(path_, RestoreMode::kMap);
  ASSERT_TRUE(restored.ok());
  const auto before = image(*other, (*restored)[0].id);
  append(*cache_, a_, ids(1, 60));
  ASSERT_TRUE(cache_->save(path_).ok());
  EXPECT_EQ(image(*other, (*restored)[0].id), before);
  EXPECT_TRUE(other->snapshot((*restored)[0].id)->check().ok());
}

TEST_P(CacheFileOf, AFileCutUnderItsMappingEndsInAStatus) {
  for (int round = 0; round < 3; ++round) {
    const std::string path = folder_ / "cut";
    put_file(path, slurp(path_));
    auto other = make_cache(geometry_, options_);
    auto restored = other->restore(path, RestoreMode::kMap);
    ASSERT_TRUE(restored.ok());
    const SequenceId a = (*restored)[0].id;
    const Snapshot snapshot = *other->snapshot(a);
    ASSERT_TRUE(snapshot.check().ok());
    ASSERT_EQ(::truncate(path.c_str(), 4096), 0);
    const auto torn = image(snapshot);  // no signal
    EXPECT_NE(torn, image(*cache_, a_));
    EXPECT_EQ(snapshot.check().code(), Code::kIo);
    EXPECT_TRUE(snapshot.layer(0).damaged->load());
    EXPECT_EQ(try_append(*other, a, ids(1, 1)).code(), Code::kIo);
    EXPECT_EQ(other->evict_prefix(a, 1).code(), geometry_.group_tokens() == 1 ? Code::kOk : Code::kIo);
    EXPECT_EQ(other->save(folder_ / "torn").code(), Code::kIo);
    EXPECT_NE(::access((folder_ / "torn").c_str(), F_OK), 0);
    const SequenceId fresh = *other->add();
    append(*other, fresh, ids(1, 10));  // the rest of the cache is untouched
    EXPECT_EQ(image(*other, fresh), plain_image(geometry_, options_, 0, ids(1, 10)));
  }
}

TEST_P(CacheFileOf, EveryTruncationIsRefused) {
  const Bytes whole = slurp(path_);
  auto other = make_cache(geometry_, options_);
  int refused = 0;
  for (std::size_t length = 0; length < whole.size(); length += length < 4200 ? 7 : 401) {
    put_file(folder_ / "short", Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
    for (const RestoreMode mode : kModes) {
      const auto restored = other->restore(folder_ / "short", mode);
      ASSERT_FALSE(restored.ok()) << length;
      EXPECT_EQ(restored.status().code(), Code::kCorrupt) << length;
      ++refused;
    }
    EXPECT_EQ(read_cache_file(folder_ / "short").status().code(), Code::kCorrupt);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(other->bytes().total(), make_cache(geometry_, options_)->bytes().total() + other->bytes().free_pages);
}

TEST_P(CacheFileOf, EveryFlippedBitIsFoundByACheckedRestoreAndByVerify) {
  const Bytes whole = slurp(path_);
  ASSERT_TRUE(verify_cache_file(path_).ok());
  auto other = make_cache(geometry_, options_);
  int found = 0;
  for (std::size_t at = 0; at < whole.size(); at += at < 4096 ? 5 : 307) {
    Bytes flipped = whole;
    flipped[at] ^= std::byte{1} << (at % 8);
    put_file(folder_ / "flipped", flipped);
    EXPECT_FALSE(other->restore(folder_ / "flipped", RestoreMode::kCopy).ok()) << at;
    EXPECT_FALSE(other->restore(folder_ / "flipped", RestoreMode::kMapVerified).ok()) << at;
    EXPECT_FALSE(verify_cache_file(folder_ / "flipped").ok()) << at;
    ++found;
  }
  EXPECT_GT(found, 900);
}

// Other writers need not align anything; then the file can be copied but not mapped.
TEST_P(CacheFileOf, AFileWhosePagesLieAnywhereIsRestoredByCopying) {
  for (const std::int64_t alignment : {1, 8, 64, 4096}) {
    put_file(folder_ / "elsewhere", Parts(path_).together(alignment));
    const auto info = read_cache_file(folder_ / "elsewhere");
    ASSERT_TRUE(info.ok()) << info.status().message();
    auto other = make_cache(geometry_, options_);
    const auto restored = other->restore(folder_ / "elsewhere", RestoreMode::kCopy);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_EQ(image(*other, (*restored)[2].id), image(*cache_, b_));
    EXPECT_TRUE(verify_cache_file(folder_ / "elsewhere").ok());
    const Status mapped = other->restore(folder_ / "elsewhere", RestoreMode::kMap).status();
    EXPECT_EQ(mapped.code(), info->mappable ? Code::kOk : Code::kUnsupported);
    EXPECT_TRUE(info->mappable || alignment < 64);
  }
}

// The seeds of the fuzzer: small enough for it to change every byte, and never stale. SERIATIM_WRITE_CORPUS in the
// environment names a folder into which they are written anew.
TEST(CacheFile, TheFuzzersSeedsAreWholeFiles) {
  const Folder folder;
  GeometryOptions tiny = small_options(1);
  tiny.query_heads = tiny.kv_heads = 1;
  tiny.head_dim = tiny.value_dim = 2;
  tiny.index_dim = 2;
  tiny.index_rotary_dim = 2;
  tiny.kv_dtype = tiny.index_dtype = DType::kF16;
  tiny.rope_axes = {1};
  auto cache = make_cache(admit(tiny), cache_options(1, 64, 16));
  const SequenceId a = *cache->add(2);
  append(*cache, a, ids(1, 17));
  append(*cache, *cache->fork(a), ids(50, 3));
  ASSERT_TRUE(cache->save(folder / "whole").ok());
  for (const std::int64_t alignment : {1, 64}) {
    const std::string name = alignment == 1 ? "copied.safetensors" : "mapped.safetensors";
    const Bytes seed = Parts(folder / "whole").together(alignment);
    EXPECT_LT(seed.size(), 4096u);
    if (const char* corpus = std::getenv("SERIATIM_WRITE_CORPUS")) put_file(std::string(corpus) + "/" + name, seed);
    EXPECT_EQ(slurp(file::corpus("cache_restore") / name), seed);
    EXPECT_TRUE(verify_cache_file(file::corpus("cache_restore") / name).ok());
  }
}

TEST(CacheFile, WhatIsNoFileIsRefused) {
  const Folder folder;
  auto cache = make_cache(admit(small_options()), cache_options(1, 64));
  for (const RestoreMode mode : kModes) {
    EXPECT_EQ(cache->restore(folder / "missing", mode).status().code(), Code::kIo);
    EXPECT_EQ(cache->restore(folder / ".", mode).status().code(), Code::kIo);
  }
  EXPECT_EQ(read_cache_file(folder / "missing").status().code(), Code::kIo);
  EXPECT_EQ(verify_cache_file(folder / "missing").code(), Code::kIo);
  EXPECT_EQ(cache->save(folder / "no/such/folder").code(), Code::kIo);
}

// The sum of finite raw keys may pass f32, and the pooled key is a NaN then. That is a state like any other: a score of
// it is refused when it is asked for, but the file must come back whole.
TEST(CacheFile, PooledKeysThatOverflowedComeBack) {
  const Folder folder;
  const Geometry geometry = admit(small_options());
  auto cache = make_cache(geometry, cache_options(1, 128, 64));
  const SequenceId sequence = *cache->add();
  Batch batch = make_batch(geometry, 0, 0, ids(1, 40));
  for (std::int64_t t = 8; t < 12; ++t) store_element(batch.index_keys.data() + t * 8 * 4, DType::kF32, 3e38f);
  auto transaction = cache->begin();
  ASSERT_TRUE(transaction->append(sequence, 0, batch.view).ok());
  ASSERT_TRUE(transaction->commit().ok());
  ASSERT_TRUE(std::isnan(largest_pooled(cache->snapshot(sequence)->layer(0))));
  EXPECT_TRUE(std::isinf(cache->snapshot(sequence)->layer(0).pooled.max_abs));
  ASSERT_TRUE(cache->save(folder / "file").ok());
  EXPECT_TRUE(verify_cache_file(folder / "file").ok());
  for (const RestoreMode mode : kModes) {
    const auto restored = cache->restore(folder / "file", mode);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_EQ(image(*cache, (*restored)[0].id), image(*cache, sequence));
    EXPECT_TRUE(std::isinf(cache->snapshot((*restored)[0].id)->layer(0).pooled.max_abs));
    ASSERT_TRUE(cache->remove((*restored)[0].id).ok());
  }
}

TEST(CacheFile, AnEmptyCacheSavesAndRestores) {
  const Folder folder;
  auto cache = make_cache(admit(small_options()), cache_options(1, 64));
  ASSERT_TRUE(cache->save(folder / "empty").ok());
  for (const RestoreMode mode : kModes) {
    auto restored = cache->restore(folder / "empty", mode);
    ASSERT_TRUE(restored.ok()) << restored.status().message();
    EXPECT_TRUE(restored->empty());
  }
  EXPECT_TRUE(verify_cache_file(folder / "empty").ok());
}

TEST(CacheFile, ItsBytesDependOnTheStateAlone) {
  const Folder folder;
  const Geometry geometry = admit(small_options());
  const auto saved = [&](auto grow, const char* name) {
    auto cache = make_cache(geometry, cache_options(2, 1024, 64));
    // Used memory differs: left-overs in free pages must not reach the file.
    const SequenceId used = *cache->add();
    const SequenceId sequence = *cache->add();
    append(*cache, used, ids(name[0] == 'a' ? 1000 : 2000, 200));
    EXPECT_TRUE(cache->remove(used).ok());
    grow(*cache, sequence);
    EXPECT_TRUE(cache->save(folder / name).ok());
    return slurp(folder / name);
  };
  const Bytes at_once = saved([](Cache& c, SequenceId s) { append(c, s, ids(1, 90)); }, "a");
  const Bytes in_steps = saved(
      [](Cache& c, SequenceId s) {
        append(c, s, ids(1, 70));
        append(c, s, ids(7000, 60));
        EXPECT_TRUE(c.truncate(s, 70).ok());
        append(c, s, ids(71, 20));
      },
      "b");
  ASSERT_GT(at_once.size(), 8192u);
  EXPECT_EQ(at_once, in_steps);
}

}  // namespace
}  // namespace seriatim
