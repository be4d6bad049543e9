// Saved by any number of ranks, restored on any other, the bits the same; a save that is cut off leaves the one before.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "seriatim/cache_file.hpp"
#include "seriatim/shard_cache.hpp"
#include "support/folder.hpp"
#include "support/sharded_story.hpp"
#include "support/sharded_world.hpp"

namespace seriatim {
namespace {

using namespace testing;

// Runs the first `steps` steps and saves, on so many ranks.
Status run_and_save(const World& world, std::size_t steps, Group& group, const std::string& folder) {
  auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
  if (!cache.ok()) return cache.status();
  for (std::size_t i = 0; i < steps; ++i) (void)run_step(**cache, world, i);
  return (*cache)->save(folder);
}

// Whether a restored cache holds what the one cache held after `step`.
::testing::AssertionResult holds(ShardedCache& cache, const std::vector<RestoredSequence>& restored, const World& world,
                                 std::size_t step) {
  const auto& due = world.states[step];
  if (restored.size() != due.size()) return ::testing::AssertionFailure() << restored.size() << " sequences";
  for (const RestoredSequence& one : restored) {
    const auto snapshot = cache.snapshot(one.id);
    if (!snapshot.ok()) return ::testing::AssertionFailure() << snapshot.status().message();
    const auto whole = due.find(one.saved);
    if (whole == due.end()) return ::testing::AssertionFailure() << "sequence " << one.saved;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      if (auto same = is_part_of(snapshot->layer(layer), whole->second.layer(layer)); !same)
        return same << ", sequence " << one.saved;
    }
  }
  return ::testing::AssertionSuccess();
}

// Restores on so many ranks; true if every rank holds what there was after one of two steps, all the same one.
bool restores(const World& world, const std::string& path, std::int64_t ranks, std::size_t step, std::size_t other,
              RestoreMode mode = RestoreMode::kCopy) {
  std::atomic<std::int64_t> first = 0;
  std::atomic<std::int64_t> second = 0;
  const auto statuses = on_every_rank(some_ranks(ranks), [&](Group& group) -> Status {
    auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
    if (!cache.ok()) return cache.status();
    const auto restored = (*cache)->restore(path, mode);
    if (!restored.ok()) return restored.status();
    const auto as_first = holds(**cache, *restored, world, step);
    const auto as_second = holds(**cache, *restored, world, other);
    EXPECT_TRUE(as_first || as_second);
    first += as_first ? 1 : 0;
    second += as_second ? 1 : 0;
    // What was restored goes on: appended to, and evicted.
    for (const RestoredSequence& one : *restored) {
      if (Status s =
              (*cache)->evict_prefix(one.id, std::min<std::int64_t>((*cache)->snapshot(one.id)->run().tokens, 1));
          !s.ok())
        return s;
    }
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
  return first == ranks || second == ranks;
}

TEST(ShardedFiles, AreRestoredOnAnyNumberOfRanks) {
  for (const std::uint64_t seed : {41U, 42U, 43U, 45U}) {
    const World world = random_world(seed, 30);
    for (const std::int64_t saved : {1, 3, 8}) {
      const file::Folder folder;
      const std::string path = folder / "saved";
      std::filesystem::create_directory(path);
      for (const std::size_t steps : {std::size_t{10}, std::size_t{30}}) {
        const auto statuses =
            on_every_rank(some_ranks(saved), [&](Group& group) { return run_and_save(world, steps, group, path); });
        for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
        const auto files = std::distance(std::filesystem::directory_iterator(path), {});
        EXPECT_EQ(files, saved + 1) << "a manifest and one file a rank, none of an earlier save";
        for (const std::int64_t ranks : {1, 2, 3, 5, 8})
          ASSERT_TRUE(restores(world, path, ranks, steps - 1, steps - 1)) << saved << " -> " << ranks;
        ASSERT_TRUE(restores(world, path, saved, steps - 1, steps - 1, RestoreMode::kMap));
      }
    }
  }
}

TEST(ShardedFiles, ASaveWritesOverNoFileOfAnEarlierOneEvenWhereTheManifestCannotBeRead) {
  const World world = random_world(44, 20);
  const file::Folder folder;
  const std::string path = folder / "saved";
  std::filesystem::create_directory(path);
  const auto save = [&](std::size_t steps) {
    for (const Status& s : on_every_rank(some_ranks(2), [&](Group& g) { return run_and_save(world, steps, g, path); }))
      EXPECT_TRUE(s.ok()) << s.message();
  };
  save(10);
  std::filesystem::resize_file(path + "/manifest.safetensors", 100);
  save(20);
  EXPECT_TRUE(std::filesystem::exists(path + "/rank-1.1.safetensors"));
  EXPECT_TRUE(restores(world, path, 3, 19, 19));
  // What a save that was cut off has left behind is no reason to take its name.
  std::ofstream(path + "/rank-0.7.safetensors") << "cut off";
  save(10);
  EXPECT_TRUE(std::filesystem::exists(path + "/rank-1.8.safetensors"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), {}), 3);
  EXPECT_TRUE(restores(world, path, 2, 9, 9));
}

TEST(ShardedFiles, OneProcesssFileOpensOnEightAndTheOtherWay) {
  const World world = random_world(46, 30);
  const file::Folder folder;
  const std::string alone = folder / "alone.safetensors";
  auto cache = cache_testing::make_cache(world.geometry, world.options);
  const SequenceId first = *cache->add(5);
  cache_testing::append(*cache, first, cache_testing::ids(10, 333));
  ASSERT_TRUE(cache->save(alone).ok());
  const Snapshot due = *cache->snapshot(first);
  const std::string spread = folder / "spread";
  std::filesystem::create_directory(spread);
  const auto statuses = on_every_rank(some_ranks(8), [&](Group& group) -> Status {
    auto sharded = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
    const auto restored = (*sharded)->restore(alone);
    if (!restored.ok()) return restored.status();
    EXPECT_TRUE(is_part_of((*sharded)->snapshot((*restored)[0].id)->layer(0), due.layer(0)));
    return (*sharded)->save(spread);
  });
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status.message();
  const std::string single = folder / "single";
  std::filesystem::create_directory(single);
  (void)on_every_rank(some_ranks(1), [&](Group& group) -> Status {
    auto sharded = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
    EXPECT_TRUE((*sharded)->restore(spread).ok());
    EXPECT_TRUE((*sharded)->save(single).ok());
    return {};
  });
  auto again = cache_testing::make_cache(world.geometry, world.options);
  const auto restored = again->restore(single + "/rank-0.0.safetensors");
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_EQ(cache_testing::image(*again->snapshot((*restored)[0].id)), cache_testing::image(due));
}

TEST(ShardedPrograms, ARankLostWhileSavingLosesNothingThatWasSaved) {
  const World world = random_world(47, 20);
  const file::Folder folder;
  const std::string path = folder / "saved";
  std::filesystem::create_directory(path);
  std::int64_t ended = 0;
  for (std::int64_t back = 0; back < 12; ++back) {
    for (const auto& status :
         on_every_rank(some_ranks(3), [&](Group& group) { return run_and_save(world, 10, group, path); }))
      ASSERT_TRUE(status.ok()) << status.message();
    std::atomic<std::int64_t> sent = 0;
    for (const bool dry : {true, false}) {
      ThreadTransports transports = *ThreadTransports::make(3, std::chrono::milliseconds(dry ? 20'000 : 200));
      if (!dry)
        transports.at_message(static_cast<int>(back % 3), sent - 1 - back / 3 * 2, ThreadTransports::Fault::kFail);
      const std::string to = dry ? folder / "dry" : path;
      std::filesystem::create_directory(to);
      const auto statuses = on_every_rank(transports, [&](Group& group) {
        const Status status = run_and_save(world, 20, group, to);
        if (group.rank() == static_cast<int>(back % 3) && dry) sent = group.transport().traffic().messages;
        return status;
      });
      for (const Status& status : statuses) ended += status.code() == Code::kPeerLost ? 1 : 0;
    }
    ASSERT_TRUE(restores(world, path, 2 + back % 3, 9, 19)) << back;
  }
  EXPECT_GT(ended, 12);
}

TEST(ShardedFiles, AManifestWithAnyByteChangedIsRefusedOrStillSaysTheSame) {
  const World world = random_world(43, 10);
  const file::Folder folder;
  const std::string path = folder / "saved";
  std::filesystem::create_directory(path);
  for (const Status& s : on_every_rank(some_ranks(2), [&](Group& g) { return run_and_save(world, 10, g, path); }))
    ASSERT_TRUE(s.ok()) << s.message();
  const std::string name = path + "/manifest.safetensors";
  std::int64_t refused = 0;
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(name));
  const auto statuses = on_every_rank(some_ranks(1), [&](Group& group) -> Status {
    for (std::int64_t at = 0; at < bytes; ++at) {
      std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      const char byte = static_cast<char>(file.get());
      const auto put = [&](int changed) {
        file.seekp(at);
        file.put(static_cast<char>(changed)).flush();
      };
      put(byte ^ (1 << at % 8));
      auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
      const auto restored = (*cache)->restore(path);
      put(byte);
      if (restored.ok()) {
        EXPECT_TRUE(holds(**cache, *restored, world, 9)) << at;
        continue;
      }
      ++refused;
      const Code code = restored.status().code();
      EXPECT_TRUE(code == Code::kCorrupt || code == Code::kUnsupported || code == Code::kNotFound || code == Code::kIo)
          << at << ": " << restored.status().message();
      EXPECT_TRUE((*cache)->sequences().empty());
      EXPECT_EQ((*cache)->local().bytes().keys_values, 0);
    }
    return {};
  });
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_GT(refused, bytes / 2);
}

TEST(ShardedFiles, WhatIsNoSaveIsRefusedOnEveryRankAlike) {
  World world{
      cache_testing::admit(cache_testing::small_options()), cache_testing::cache_options(kLayers, 1 << 16), {}, {}, {}};
  world.steps.push_back({Step::kAdd, 0, 0, -1, {80}});
  world.steps.push_back({Step::kAppend, 0, 900, -1, {80}});
  const file::Folder folder;
  const std::string path = folder / "saved";
  std::filesystem::create_directory(path);
  const auto restore = [&](std::int64_t ranks) {
    return on_every_rank(some_ranks(ranks), [&](Group& group) -> Status {
      auto cache = ShardedCache::create(world.geometry, {world.options, 0.25}, group);
      const Status status = (*cache)->restore(path).status();
      EXPECT_TRUE((*cache)->sequences().empty());
      EXPECT_EQ((*cache)->local().bytes().keys_values, 0);
      return status;
    });
  };
  for (const Status& status : restore(2)) EXPECT_TRUE(fails_with(status, Code::kNotFound, "path"));
  for (const Status& s : on_every_rank(some_ranks(2), [&](Group& g) { return run_and_save(world, 2, g, path); }))
    ASSERT_TRUE(s.ok()) << s.message();
  // One byte of one rank's file: only ranks that read it refuse, and all say so.
  std::fstream file(path + "/rank-1.0.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-9, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(-9, std::ios::end);
  file.put(byte);
  file.close();
  for (const std::int64_t ranks : {2, 3}) {
    const auto statuses = restore(ranks);
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), Code::kCorrupt) << status.message();
      EXPECT_EQ(status.message(), statuses.front().message());
      EXPECT_NE(status.message().find("rank "), std::string_view::npos);
    }
  }
  std::filesystem::resize_file(path + "/manifest.safetensors", 100);
  for (const Status& status : restore(2)) EXPECT_EQ(status.code(), Code::kCorrupt) << status.message();
}

}  // namespace
}  // namespace seriatim
