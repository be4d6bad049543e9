// Every allocation and every system call of every operation fails once in turn. Afterwards the state is the old one or,
// past the commit point, the new one; the call can be repeated; nothing has leaked.
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <limits>

#include "cache_file/save.hpp"
#include "cache_heap.hpp"
#include "cache_support.hpp"
#include "file/file_testing.hpp"
#include "seriatim/cache_file.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using file::Folder;
using file::slurp;

// A file with a sequence of 70 tokens at 3, saved once.
const std::string& file_to_map() {
  static const Folder folder;
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

struct Operation {
  const char* name;
  std::function<Status(World&)> run;
};

template <typename T>
Status status_of(const Result<T>& result) {
  return result.status();
}

// What an engine does in a step: two sequences, all layers, one swap.
Status engine_step(World& w, std::int64_t kept) {
  auto transaction = w.cache->begin();
  if (!transaction.ok()) return transaction.status();
  for (const auto& [id, batches] : {std::pair{w.a, &w.batches_a}, std::pair{w.d, &w.batches_d}}) {
    for (std::int64_t l = 0; l < 2; ++l) {
      if (Status s = transaction->append(id, l, (*batches)[static_cast<std::size_t>(l)].view); !s.ok()) return s;
      if (auto view = transaction->layer(id, l); !view.ok()) return view.status();
    }
  }
  return kept < 0 ? transaction->commit() : transaction->commit_prefix(kept);
}

// Speculation inside a step: two sequences keep different prefixes and go on behind them.
Status kept_and_gone_on(World& w) {
  auto transaction = w.cache->begin();
  if (!transaction.ok()) return transaction.status();
  for (std::int64_t l = 0; l < 2; ++l) {
    const auto layer = static_cast<std::size_t>(l);
    if (Status s = transaction->append(w.a, l, w.batches_a[layer].view); !s.ok()) return s;
    if (Status s = transaction->append(w.d, l, w.batches_d[layer].view); !s.ok()) return s;
  }
  if (Status s = transaction->keep(w.a, 0); !s.ok()) return s;
  if (Status s = transaction->keep(w.d, 4); !s.ok()) return s;
  for (std::int64_t l = 0; l < 2; ++l) {
    if (Status s = transaction->append(w.a, l, w.batches_a[static_cast<std::size_t>(l)].view); !s.ok()) return s;
  }
  return transaction->commit();
}

Status one_token(World& w, SequenceId sequence) {
  auto transaction = w.cache->begin();
  if (!transaction.ok()) return transaction.status();
  for (const Batch& batch : w.batches_mapped) {
    if (Status s = transaction->append(sequence, &batch - w.batches_mapped.data(), batch.view); !s.ok()) return s;
  }
  return transaction->commit();
}

std::vector<Operation> operations(const std::string& file) {
  return {
      {"add", [](World& w) { return status_of(w.cache->add(5)); }},
      {"remove", [](World& w) { return w.cache->remove(w.b); }},
      {"reset", [](World& w) { return w.cache->reset(w.a, 8); }},
      {"truncate", [](World& w) { return w.cache->truncate(w.a, 70); }},
      {"fork", [](World& w) { return status_of(w.cache->fork(w.a)); }},
      {"evict_prefix, groups kept", [](World& w) { return w.cache->evict_prefix(w.a, 68); }},
      {"evict_prefix, pooled again", [](World& w) { return w.cache->evict_prefix(w.a, 67); }},
      {"evict_prefix, everything", [](World& w) { return w.cache->evict_prefix(w.a, 150); }},
      {"copy into an empty sequence", [](World& w) { return w.cache->copy(w.a, 20, 90, w.d); }},
      {"copy behind other tokens", [](World& w) { return w.cache->copy(w.a, 33, 80, w.e); }},
      {"begin, and a rollback", [](World& w) { return status_of(w.cache->begin()); }},
      {"a step that goes on after keep", kept_and_gone_on},
      {"a step that is rolled back",
       [](World& w) {
         auto transaction = w.cache->begin();
         if (!transaction.ok()) return transaction.status();
         if (Status s = transaction->append(w.a, 0, w.batches_a[0].view); !s.ok()) return s;
         transaction->rollback();
         return Status();
       }},
      {"append to a mapped sequence", [](World& w) { return one_token(w, w.mapped); }},
      {"evict_prefix of a mapped sequence, pooled again", [](World& w) { return w.cache->evict_prefix(w.mapped, 3); }},
      {"truncate a mapped sequence", [](World& w) { return w.cache->truncate(w.mapped, 66); }},
      {"trim",
       [](World& w) {
         w.cache->trim();
         return Status();
       }},
      {"a committed step", [](World& w) { return engine_step(w, -1); }},
      {"a step of which a prefix is kept", [](World& w) { return engine_step(w, 4); }},
      {"a step of which nothing is kept", [](World& w) { return engine_step(w, 0); }},
      {"restore by copying", [=](World& w) { return status_of(w.cache->restore(file, RestoreMode::kCopy)); }},
      {"restore by mapping", [=](World& w) { return status_of(w.cache->restore(file, RestoreMode::kMap)); }},
      {"restore by mapping, verified",
       [=](World& w) { return status_of(w.cache->restore(file, RestoreMode::kMapVerified)); }},
      {"save", [again = file + ".again"](World& w) { return w.cache->save(again); }},
      {"save of chosen sequences",
       [again = file + ".again"](World& w) {
         const SequenceId chosen[] = {w.c, w.a};
         return w.cache->save(again, chosen);
       }},
      {"snapshot", [](World& w) { return status_of(w.cache->snapshot(w.a)); }},
      {"read_cache_file", [=](World&) { return status_of(read_cache_file(file)); }},
      {"verify_cache_file", [=](World&) { return verify_cache_file(file); }},
  };
}

struct Used {
  std::int64_t keys_values, pooled_keys, mapped;
  explicit Used(const CacheBytes& b) : keys_values(b.keys_values), pooled_keys(b.pooled_keys), mapped(b.mapped) {}
  bool operator==(const Used&) const = default;
};

// A way to make request number k fail, and to stop it and say whether one did.
struct Faults {
  std::function<void(std::int64_t k)> arm;
  std::function<bool()> disarm;
};

// Whether the fault happened.
bool fail_once(const Operation& operation, PageAllocator* allocator, const Faults& faults, Code code, std::int64_t k,
               const std::vector<std::byte>& old_digest, const std::vector<std::byte>& new_digest) {
  World world(allocator);
  const Used before(world.cache->bytes());
  faults.arm(k);
  const Status status = operation.run(world);
  const bool fired = faults.disarm();
  const auto digest = world.digest();
  if (status.ok()) {
    EXPECT_EQ(digest, new_digest) << operation.name << ", fault " << k;
    return fired;
  }
  EXPECT_TRUE(fired) << operation.name << ": " << status.message();
  EXPECT_EQ(status.code(), code) << operation.name << ", fault " << k << ": " << status.message();
  EXPECT_EQ(digest, old_digest) << operation.name << ", fault " << k;
  EXPECT_EQ(Used(world.cache->bytes()), before) << operation.name << ", fault " << k;
  EXPECT_TRUE(operation.run(world).ok()) << operation.name << " again after fault " << k;
  EXPECT_EQ(world.digest(), new_digest) << operation.name << " again after fault " << k;
  return fired;
}

void fail_everything_once(const Operation& operation, PageAllocator* allocator, const Faults& faults, Code code) {
  const auto old_digest = World(allocator).digest();
  World changed(allocator);
  ASSERT_TRUE(operation.run(changed).ok()) << operation.name;
  const auto new_digest = changed.digest();
  std::int64_t k = 0;
  for (bool fired = true; fired; ++k) {
    const std::int64_t live = heap_live_bytes();
    fired = fail_once(operation, allocator, faults, code, k, old_digest, new_digest);
    EXPECT_EQ(heap_live_bytes(), live) << operation.name << ", fault " << k << " has leaked";
  }
  testing::Test::RecordProperty(operation.name, static_cast<int>(k - 1));  // faults: the last round had none
}

TEST(CacheFaults, AnyRefusedAllocationLeavesTheOldStateOrTheNew) {
  const Folder folder;
  const std::string saved = folder / "saved";
  ASSERT_TRUE(World().cache->save(saved).ok());
  for (const bool all_later_too : {false, true}) {
    const Faults faults{[&](std::int64_t k) { arm_heap_fault(k, all_later_too); }, disarm_heap_fault};
    for (const Operation& operation : operations(saved))
      fail_everything_once(operation, nullptr, faults, Code::kOutOfMemory);
  }
}

// Refuses page number k.
class FailingAllocator final : public PageAllocator {
 public:
  std::byte* allocate(std::int64_t bytes) override {
    if (left-- == 0) {
      fired = true;
      return nullptr;
    }
    return heap_page_allocator().allocate(bytes);
  }
  void release(std::byte* memory, std::int64_t bytes) noexcept override {
    heap_page_allocator().release(memory, bytes);
  }

  std::int64_t left = -1;
  bool fired = false;
};

TEST(CacheFaults, AnyRefusedPageLeavesTheOldState) {
  const Folder folder;
  const std::string saved = folder / "saved";
  ASSERT_TRUE(World().cache->save(saved).ok());
  FailingAllocator allocator;
  const Faults faults{[&](std::int64_t k) {
                        allocator.left = k;
                        allocator.fired = false;
                      },
                      [&] {
                        allocator.left = -1;
                        return allocator.fired;
                      }};
  for (const Operation& operation : operations(saved))
    fail_everything_once(operation, &allocator, faults, Code::kOutOfMemory);
}

TEST(CacheFaults, AFailedReservationGivesBackWhatItHad) {
  FailingAllocator allocator;
  for (std::int64_t k = 0;; ++k) {
    CacheOptions options = cache_options(2, 256, 64);
    options.allocator = &allocator;
    options.reserve = true;
    allocator.left = k;
    allocator.fired = false;
    const auto cache = Cache::create(admit(small_options()), options);
    if (!allocator.fired) {
      EXPECT_TRUE(cache.ok());
      EXPECT_EQ(k, 4 + 2 * 4);  // token pages, pooled pages
      break;
    }
    EXPECT_EQ(cache.status().code(), Code::kOutOfMemory);
  }
}

// One call in turn fails, or does less than it was asked, or is interrupted.
class FailingCalls final : public file::FileCalls {
 public:
  enum class Kind { kFail, kShort, kInterrupt };
  FailingCalls(Kind kind, std::int64_t first) : kind_(kind), left_(first) {}

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : FileCalls::open(path, flags, mode);
  }
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (kind_ == Kind::kShort && bytes > 1 && left_-- == 0) {
      fired = true;
      return FileCalls::write(fd, data, bytes / 2);
    }
    if (kind_ == Kind::kInterrupt && left_-- == 0) {
      fired = true;
      errno = EINTR;
      return -1;
    }
    return fails() ? -1 : FileCalls::write(fd, data, bytes);
  }
  int close(int fd) override {  // the system has taken it all the same
    const bool failed = fails();
    harmless = failed && renamed;  // of the directory, when all is done
    const int result = FileCalls::close(fd);
    if (failed) errno = EIO;
    return failed ? -1 : result;
  }
  int fsync(int fd) override { return fails() ? -1 : FileCalls::fsync(fd); }
  int rename(const char* from, const char* to) override {
    if (fails()) return -1;
    renamed = true;
    return FileCalls::rename(from, to);
  }

  bool fired = false;
  bool renamed = false;
  bool harmless = false;

 private:
  bool fails() {
    if (kind_ != Kind::kFail || left_-- != 0) return false;
    fired = true;
    errno = ENOSPC;
    return true;
  }
  const Kind kind_;
  std::int64_t left_;
};

TEST(CacheFaults, AnyFailedWriteSyncOrRenameLeavesTheOldFileOrTheNew) {
  const Folder folder;
  const std::string path = folder / "cache";
  World first;
  World second;
  append(*second.cache, second.a, ids(900, 77));
  ASSERT_TRUE(second.cache->save(folder / "second").ok());
  const auto new_bytes = slurp(folder / "second");
  std::filesystem::remove(folder / "second");
  ASSERT_TRUE(first.cache->save(path).ok());
  const auto old_bytes = slurp(path);
  ASSERT_NE(old_bytes, new_bytes);
  for (const auto kind : {FailingCalls::Kind::kFail, FailingCalls::Kind::kShort, FailingCalls::Kind::kInterrupt}) {
    std::int64_t faults = 0;
    for (;; ++faults) {
      FailingCalls calls(kind, faults);
      const Status status = save_cache(*second.cache, path, calls);
      if (!calls.fired) {
        EXPECT_TRUE(status.ok());
        break;
      }
      EXPECT_EQ(status.ok(), kind != FailingCalls::Kind::kFail || calls.harmless) << faults;
      EXPECT_EQ(status.code(), status.ok() ? Code::kOk : Code::kIo);
      EXPECT_EQ(slurp(path), calls.renamed ? new_bytes : old_bytes) << faults;
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "."), {}), 1)
          << "a temporary file has stayed";
      ASSERT_TRUE(first.cache->save(path).ok());
    }
    EXPECT_GT(faults, kind == FailingCalls::Kind::kFail ? 6 : 1);
    RecordProperty("system calls, kind " + std::to_string(static_cast<int>(kind)), static_cast<int>(faults));
    EXPECT_EQ(slurp(path), new_bytes);
    ASSERT_TRUE(first.cache->save(path).ok());
  }
}

// The names of the calls in the order in which they were made, many writes as one.
class RecordedCalls final : public file::FileCalls {
 public:
  ssize_t write(int fd, const void* data, std::size_t bytes) override {
    if (!order.ends_with("write ")) order += "write ";
    return FileCalls::write(fd, data, bytes);
  }
  int fsync(int fd) override {
    order += "fsync ";
    return FileCalls::fsync(fd);
  }
  int rename(const char* from, const char* to) override {
    order += "rename ";
    return FileCalls::rename(from, to);
  }
  std::string order;
};

TEST(CacheFaults, TheFileIsFlushedBeforeItIsRenamedAndTheDirectoryAfterwards) {
  const Folder folder;
  World world;
  RecordedCalls calls;
  ASSERT_TRUE(save_cache(*world.cache, folder / "cache", calls).ok());
  EXPECT_EQ(calls.order, "write fsync rename fsync ");
}

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
