// Readers plan, attend and save while the writer stages, commits, rewinds and evicts. A snapshot must not change under
// them; ThreadSanitizer proves that nothing is read while it is written.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <random>
#include <thread>

#include "seriatim/cache_file.hpp"
#include "support/cache.hpp"
#include "support/engine_for.hpp"
#include "support/file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;

constexpr std::int64_t kPageTokens = 64;
constexpr std::int64_t kMostTokens = 5 * kPageTokens;

// One query's row and output over a layer, from memory of its own.
class Reader {
 public:
  explicit Reader(const Geometry& geometry)
      : geometry_(geometry), engine_(testing::engine_for(geometry, kMostTokens + 64)) {
    for (std::size_t i = 0; i < index_query_.size(); ++i) index_query_[i] = static_cast<float>(i % 7) - 3.0f;
    for (std::size_t i = 0; i < query_.size(); ++i) query_[i] = static_cast<float>(i % 5) - 2.0f;
  }

  // Everything a decode step computes for the layer's last token.
  std::vector<std::byte> answer(const LayerView& layer) {
    const std::int64_t position = layer.run.anchor + layer.run.tokens - 1;
    const std::span<const std::int64_t> positions(&position, 1);
    std::vector<std::int32_t> row(static_cast<std::size_t>(geometry_.row_capacity()));
    std::int32_t count = 0;
    const Rows rows{row.data(), geometry_.row_capacity(), &count};
    const IndexQueries index{dense_view(std::as_const(index_query_).data(), DType::kF32, {1, 2, 8}), {}, positions};
    EXPECT_TRUE(engine_.plan(layer, index, NanPolicy::kRefuse, rows).ok());
    std::vector<std::byte> output(4 * 5 * sizeof(float));
    const AttendQueries queries{dense_view(std::as_const(query_).data(), DType::kF32, {1, 4, 6}), positions, {}};
    EXPECT_TRUE(engine_.attend(layer, queries, rows, dense_view(output.data(), DType::kF32, {1, 4, 5}), {}).ok());
    const auto* begin = reinterpret_cast<const std::byte*>(row.data());
    output.insert(output.end(), begin, begin + count * static_cast<std::int64_t>(sizeof(std::int32_t)));
    return output;
  }

 private:
  const Geometry& geometry_;
  Engine engine_;
  std::vector<float> index_query_ = std::vector<float>(2 * 8);
  std::vector<float> query_ = std::vector<float>(4 * 6);
};

struct Shared {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(2, 40 * kPageTokens, kPageTokens);
  const std::unique_ptr<Cache> cache = make_cache(geometry, options);
  const SequenceId sequence = *cache->add();
  std::atomic<bool> done{false};
  std::atomic<int> readings{0};
};

void read_until_done(Shared& shared) {
  Reader reader(shared.geometry);
  while (!shared.done.load()) {
    const Snapshot snapshot = *shared.cache->snapshot(shared.sequence);
    if (snapshot.run().tokens == 0) continue;
    const auto before = image(snapshot);
    const auto first = reader.answer(snapshot.layer(0));
    const auto second = reader.answer(snapshot.layer(1));
    EXPECT_EQ(reader.answer(snapshot.layer(0)), first);
    EXPECT_EQ(reader.answer(snapshot.layer(1)), second);
    EXPECT_EQ(image(snapshot), before);
    ++shared.readings;
  }
}

void save_until_done(Shared& shared, const std::string& path) {
  while (!shared.done.load()) {
    const std::string file = path + std::to_string(shared.readings.load());
    EXPECT_TRUE(shared.cache->save(file).ok());
    EXPECT_TRUE(verify_cache_file(file).ok());
    std::filesystem::remove(file);
  }
}

// What the writer has done, as tokens.
struct Written {
  std::int64_t anchor = 0;
  std::vector<TokenId> tokens;
};

void write_step(Shared& shared, Written& written, std::mt19937& random, TokenId next) {
  const auto count = static_cast<std::int64_t>(1 + random() % 9);
  const auto held = static_cast<std::int64_t>(written.tokens.size());
  const auto fresh = ids(next, count);
  auto transaction = shared.cache->begin();
  ASSERT_TRUE(transaction.ok());
  for (std::int64_t l = 0; l < 2; ++l) {
    const Batch batch = make_batch(shared.geometry, l, written.anchor + held, fresh);
    ASSERT_TRUE(transaction->append(shared.sequence, l, batch.view).ok());
  }
  const std::int64_t kept = random() % 4 == 0 ? static_cast<std::int64_t>(random()) % (count + 1) : count;
  ASSERT_TRUE(transaction->commit_prefix(kept).ok());
  written.tokens.insert(written.tokens.end(), fresh.begin(), fresh.begin() + kept);
}

void shorten(Shared& shared, Written& written, std::mt19937& random) {
  const auto held = static_cast<std::int64_t>(written.tokens.size());
  if (held > kMostTokens) {
    const std::int64_t evicted = held / 2 + static_cast<std::int64_t>(random() % 4);
    ASSERT_TRUE(shared.cache->evict_prefix(shared.sequence, evicted).ok());
    written.anchor += evicted;
    written.tokens.erase(written.tokens.begin(), written.tokens.begin() + evicted);
  } else if (random() % 5 == 0 && held > 0) {
    const std::int64_t kept =
        held - static_cast<std::int64_t>(random() % std::min<std::uint64_t>(static_cast<std::uint64_t>(held), 20));
    ASSERT_TRUE(shared.cache->truncate(shared.sequence, kept).ok());
    written.tokens.resize(static_cast<std::size_t>(kept));
  } else if (random() % 9 == 0) {
    const SequenceId fork = *shared.cache->fork(shared.sequence);
    append(*shared.cache, fork, ids(1, 3));
    ASSERT_TRUE(shared.cache->remove(fork).ok());
  }
}

TEST(CacheThreads, SnapshotsStandStillWhileTheWriterGoesOn) {
  const file::Folder folder;
  Shared shared;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) readers.emplace_back(read_until_done, std::ref(shared));
  readers.emplace_back(save_until_done, std::ref(shared), folder / "save-");
  Written written;
  std::mt19937 random(7);
  for (TokenId step = 0; step < 1500 || (shared.readings.load() < 200 && step < 200'000); ++step) {
    write_step(shared, written, random, 1 + 16 * step);
    shorten(shared, written, random);
  }
  shared.done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_GE(shared.readings.load(), 200);
  EXPECT_EQ(image(*shared.cache, shared.sequence),
            plain_image(shared.geometry, shared.options, written.anchor, written.tokens));
}

// Writers take turns; each sees its own sequence as if alone.
TEST(CacheThreads, CallsOfSeveralWritersTakeTurns) {
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(1, 40 * kPageTokens, kPageTokens);
  auto cache = make_cache(geometry, options);
  std::vector<SequenceId> sequences;
  for (int i = 0; i < 3; ++i) sequences.push_back(*cache->add());
  std::vector<std::thread> writers;
  for (const SequenceId sequence : sequences) {
    writers.emplace_back([&cache, sequence] {
      for (TokenId t = 0; t < 100;) {
        const Status status = try_append(*cache, sequence, ids(1000 * static_cast<TokenId>(sequence) + t, 1));
        if (status.ok()) ++t;  // otherwise another transaction is open
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  for (const SequenceId sequence : sequences) {
    EXPECT_EQ(image(*cache, sequence),
              plain_image(geometry, options, 0, ids(1000 * static_cast<TokenId>(sequence), 100)));
  }
}

}  // namespace
}  // namespace seriatim
