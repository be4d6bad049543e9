// A cache's accounting, held against what the heap says.
#include <gtest/gtest.h>

#include "support/cache_world.hpp"
#include "support/heap.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using file::Folder;
using testing::heap_live_bytes;

// What bytes() says is what the heap and the allocator have handed out, to the byte.
TEST(CacheBytes, EqualWhatTheHeapAndTheAllocatorHandedOut) {
  const Folder folder;
  const Geometry geometry = admit(small_options());
  const CacheOptions options = cache_options(2, 1024, 64);
  auto cache = make_cache(geometry, options);
  const std::int64_t fixed = heap_live_bytes() - cache->bytes().total();
  const auto expect_exact = [&](const char* after) {
    EXPECT_EQ(cache->bytes().total(), heap_live_bytes() - fixed) << after;
  };
  expect_exact("create");
  const SequenceId a = *cache->add();
  expect_exact("add");
  append(*cache, a, ids(1, 200));
  expect_exact("append");
  const SequenceId b = *cache->fork(a);
  append(*cache, b, ids(7, 1));
  expect_exact("fork");
  ASSERT_TRUE(cache->truncate(a, 3).ok());
  expect_exact("truncate");
  ASSERT_TRUE(cache->evict_prefix(b, 65).ok());
  expect_exact("evict_prefix");
  {
    const Snapshot snapshot = *cache->snapshot(b);
    ASSERT_TRUE(cache->remove(b).ok());
    expect_exact("remove under a snapshot");
  }
  expect_exact("the snapshot's end");
  ASSERT_TRUE(cache->save(folder / "file").ok());
  expect_exact("save");
  ASSERT_TRUE(cache->restore(folder / "file", RestoreMode::kCopy).ok());
  expect_exact("restore by copying");
  ASSERT_TRUE(cache->restore(folder / "file", RestoreMode::kMap).ok());
  expect_exact("restore by mapping");
  cache->trim();
  EXPECT_EQ(cache->bytes().free_pages, 0);
  expect_exact("trim");
}

TEST(CacheBytes, NothingIsLeftWhenACacheAndItsSnapshotsAreGone) {
  {
    const World first;
  }  // a process keeps what its first cache asks for, such as the list of kernels
  const std::int64_t before = heap_live_bytes();
  {
    World world;
    const Snapshot snapshot = *world.cache->snapshot(world.b);
    auto transaction = world.cache->begin();
    EXPECT_TRUE(transaction->append(world.d, 0, make_batch(world.cache->geometry(), 0, 20, ids(1, 100)).view).ok());
    world.cache.reset();  // before the transaction and the snapshot
    EXPECT_GT(image(snapshot).size(), 100u);
  }
  EXPECT_EQ(heap_live_bytes(), before);
}

}  // namespace
}  // namespace seriatim
