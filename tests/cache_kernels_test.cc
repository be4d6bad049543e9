// mesh-llm#1901, sglang#39156: save, clear, reuse the slots, restore elsewhere, go on decoding: the digest of every
// step is that of never having stopped, whichever kernels write and whichever read.
#include <gtest/gtest.h>

#include "seriatim/kernels.hpp"
#include "support/bits.hpp"
#include "support/cache.hpp"
#include "support/engine_for.hpp"
#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

constexpr std::int64_t kPrompt = 150;
constexpr std::int64_t kSteps = 40;
constexpr std::int64_t kAnchor = 1'000'003;

struct Setting {
  DType dtype;
  bool axes;
  Geometry geometry = [this] {
    GeometryOptions options = small_options();
    options.kv_dtype = options.index_dtype = dtype;
    if (axes) options.rope_axes = {2, 1};
    return admit(options);
  }();

  std::unique_ptr<Cache> cache(Kernels kernels) const {
    CacheOptions options = cache_options(2, 512, 64);
    options.kernels = kernels;
    return make_cache(geometry, options);
  }
};

// The rows and outputs of one decode step in both layers.
std::uint64_t answer(const Setting& setting, Kernels kernels, const Snapshot& snapshot) {
  const Geometry& g = setting.geometry;
  Engine engine = testing::engine_for(g, kPrompt + kSteps, serial_executor(), kernels);
  const std::int64_t position = snapshot.run().anchor + snapshot.run().tokens - 1;
  const std::span<const std::int64_t> positions(&position, 1);
  const Batch drawn =
      make_batch(g, 7, 0, ids(5000 + static_cast<TokenId>(position), 2));  // two kv heads' worth of numbers
  const IndexQueries index{
      dense_view(std::as_const(drawn.index_keys).data(), g.index_dtype(), {1, 2, 8}), {}, positions};
  const AttendQueries queries{dense_view(std::as_const(drawn.keys).data(), g.kv_dtype(), {1, 4, 6}), positions, {}};
  std::uint64_t digest = 0;
  for (std::int64_t l = 0; l < 2; ++l) {
    std::vector<std::int32_t> row(static_cast<std::size_t>(g.row_capacity()));
    std::int32_t count = 0;
    const Rows rows{row.data(), g.row_capacity(), &count};
    std::vector<std::byte> output(static_cast<std::size_t>(4 * 5 * dtype_bytes(g.kv_dtype())));
    EXPECT_TRUE(engine.plan(snapshot.layer(l), index, NanPolicy::kRefuse, rows).ok());
    EXPECT_TRUE(
        engine.attend(snapshot.layer(l), queries, rows, dense_view(output.data(), g.kv_dtype(), {1, 4, 5}), {}).ok());
    EXPECT_LT(count, snapshot.run().tokens) << "everything fits the budget: nothing was selected";
    digest = testing::digest(std::as_bytes(std::span(row)), digest ^ testing::digest(output));
  }
  return digest;
}

// Decodes kSteps tokens and gives a digest a step.
std::vector<std::uint64_t> decode(const Setting& setting, Kernels kernels, Cache& cache, SequenceId sequence) {
  std::vector<std::uint64_t> digests;
  for (TokenId step = 0; step < static_cast<TokenId>(kSteps); ++step) {
    append(cache, sequence, ids(9000 + step, 1));
    digests.push_back(answer(setting, kernels, *cache.snapshot(sequence)));
  }
  return digests;
}

std::vector<std::uint64_t> never_stopped(const Setting& setting, Kernels kernels) {
  const auto cache = setting.cache(kernels);
  const SequenceId sequence = *cache->add(kAnchor);
  append(*cache, sequence, ids(1, kPrompt));
  return decode(setting, kernels, *cache, sequence);
}

class CacheOnKernels : public ::testing::TestWithParam<std::string> {};

// Positions from 1,000,003 on (unslothai/llama.cpp#114): groups count from the anchor, restored or not.
TEST_P(CacheOnKernels, SaveClearReuseTheSlotsRestoreAndGoOnDecoding) {
  const Kernels kernels = *Kernels::named(GetParam());
  int compared = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const bool axes : {false, true}) {
      const Setting setting{dtype, axes};
      const auto expected = never_stopped(setting, Kernels::reference());
      ASSERT_TRUE(testing::varies(std::span(expected)));
      EXPECT_EQ(never_stopped(setting, kernels), expected);
      const file::Folder folder;
      const auto cache = setting.cache(kernels);
      const SequenceId sequence = *cache->add(kAnchor);
      append(*cache, sequence, ids(1, kPrompt));
      const auto whole = image(*cache, sequence);
      ASSERT_TRUE(cache->save(folder / "saved").ok());
      ASSERT_TRUE(cache->remove(sequence).ok());
      const std::int64_t held = cache->bytes().pages();
      append(*cache, *cache->add(), ids(40'000, kPrompt));  // other tokens in the same slots
      ASSERT_EQ(cache->bytes().pages(), held);
      for (const RestoreMode mode : {RestoreMode::kCopy, RestoreMode::kMap, RestoreMode::kMapVerified}) {
        for (Cache* where : {cache.get(), setting.cache(kernels).release()}) {
          const std::unique_ptr<Cache> elsewhere(where == cache.get() ? nullptr : where);
          const auto restored = where->restore(folder / "saved", mode);
          ASSERT_TRUE(restored.ok()) << restored.status().message();
          EXPECT_EQ(image(*where, (*restored)[0].id), whole);
          EXPECT_EQ(decode(setting, kernels, *where, (*restored)[0].id), expected);
          ASSERT_TRUE(where->remove((*restored)[0].id).ok());
          ++compared;
        }
      }
      // What these kernels wrote is what the definition would have.
      const auto by_definition = setting.cache(Kernels::reference());
      const SequenceId same = *by_definition->add(kAnchor);
      append(*by_definition, same, ids(1, kPrompt));
      EXPECT_EQ(image(*by_definition, same), whole);
    }
  }
  EXPECT_EQ(compared, 3 * 2 * 3 * 2);
}

// Pooled again after every eviction that shifts the groups, across pages, by every kernel.
TEST_P(CacheOnKernels, EvictedPrefixesPoolAgainByTheSameBits) {
  const Kernels kernels = *Kernels::named(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const Setting setting{dtype, true};
    for (std::int64_t evicted = 1; evicted < kPrompt; evicted += 13) {
      const auto cache = setting.cache(kernels);
      const SequenceId sequence = *cache->add(kAnchor);
      append(*cache, sequence, ids(1, kPrompt));
      ASSERT_TRUE(cache->evict_prefix(sequence, evicted).ok());
      const auto fresh = setting.cache(Kernels::reference());
      const SequenceId same = *fresh->add(kAnchor + evicted);
      append(*fresh, same, ids(1 + static_cast<TokenId>(evicted), kPrompt - evicted));
      EXPECT_EQ(image(*cache, sequence), image(*fresh, same)) << evicted;
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, CacheOnKernels, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace seriatim
