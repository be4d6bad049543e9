// A cache that has lived, for tests in which one of its operations fails.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "seriatim/cache_file.hpp"
#include "support/cache.hpp"
#include "support/folder.hpp"

namespace seriatim::cache_testing {

// A file with a sequence of 70 tokens at 3, saved once.
inline const std::string& file_to_map() {
  static const file::Folder folder;
  static const std::string path = [] {
    const auto cache = make_cache(admit(small_options()), cache_options(2, 1024, 64));
    append(*cache, *cache->add(3), ids(600, 70));
    if (!cache->save(folder / "mapped").ok()) std::abort();
    return folder / "mapped";
  }();
  return path;
}

// A cache in the middle of its life: a, its fork b that has gone on, c with an evicted prefix, d empty, e on its own,
// and one whose pages are a file's. And the batches of its next step, so that an operation under test takes no memory
// of the test's.
struct World {
  explicit World(PageAllocator* allocator = nullptr) {
    CacheOptions options = cache_options(2, 1024, 64);
    options.allocator = allocator;
    cache = make_cache(admit(small_options()), options);
    a = *cache->add(3);
    append(*cache, a, ids(1, 150));
    b = *cache->fork(a);
    append(*cache, b, ids(300, 5));
    c = *cache->fork(a);
    if (!cache->evict_prefix(c, 70).ok()) std::abort();
    d = *cache->add(20);
    e = *cache->add(3);
    append(*cache, e, ids(500, 30));
    for (std::int64_t l = 0; l < 2; ++l) {
      batches_a.push_back(make_batch(cache->geometry(), l, 153, ids(700, 60)));
      batches_d.push_back(make_batch(cache->geometry(), l, 20, ids(800, 9)));
      batches_mapped.push_back(make_batch(cache->geometry(), l, 73, ids(690, 3)));
    }
    const auto restored = cache->restore(file_to_map(), RestoreMode::kMap);
    if (!restored.ok()) std::abort();
    mapped = restored->front().id;
    for (int i = 0; i < 2; ++i) (void)*cache->add(1);  // eight: the next sequence makes the list of them grow
  }

  std::vector<std::byte> digest() const {
    std::vector<std::byte> all;
    for (SequenceId id = 0; id < 16; ++id) {
      const auto snapshot = cache->snapshot(id);
      all.push_back(std::byte(snapshot.ok()));
      if (!snapshot.ok()) continue;
      const auto one = image(*snapshot);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::unique_ptr<Cache> cache;
  SequenceId a, b, c, d, e, mapped;
  std::vector<Batch> batches_a, batches_d, batches_mapped;
};

}  // namespace seriatim::cache_testing
