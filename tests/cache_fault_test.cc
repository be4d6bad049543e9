// Every allocation of every operation fails once in turn. Afterwards the state is the old one or, past the commit
// point, the new one; the call can be repeated; nothing has leaked.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "seriatim/cache_file.hpp"
#include "support/cache_world.hpp"
#include "support/heap.hpp"

namespace seriatim {
namespace {

using namespace cache_testing;
using file::Folder;
using testing::arm_heap_fault;
using testing::disarm_heap_fault;
using testing::heap_live_bytes;

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
  ::testing::Test::RecordProperty(operation.name, static_cast<int>(k - 1));  // faults: the last round had none
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

}  // namespace
}  // namespace seriatim
