// What Cache and Transaction share.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cache/staged.hpp"
#include "cache/state.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

// Two locks. `writing` is held for the whole of every call that changes anything. `publishing` guards `sequences` and
// is held for a few instructions; readers take it alone, so they never wait for a writer's work.
struct Cache::Impl {
  struct Entry {
    SequenceId id = 0;
    Ref<const SequenceState> state;
  };

  Impl(Ref<Store> s, PoolBuffers b) : store(std::move(s)), buffers(std::move(b)) {}

  Ref<Store> store;
  PoolBuffers buffers;
  std::mutex writing;
  mutable std::mutex publishing;
  std::vector<Entry> sequences;  // by ascending id
  SequenceId next_id = 0;
  Transaction::Staged* open = nullptr;

  // Null if there is none. The caller holds one of the locks.
  const Entry* find(SequenceId sequence) const;
  Entry* find(SequenceId sequence);

  // The entry, for a call other than the transaction's. Errors  NotFound; InvalidArgument: it is staged.
  Result<Entry*> find_unstaged(SequenceId sequence);

  // A new sequence in that state. Throws bad_alloc.
  SequenceId add(Ref<const SequenceState> state);
  void publish(Entry& entry, Ref<const SequenceState> state) noexcept;
};

struct Transaction::Staged {
  std::shared_ptr<Cache::Impl> cache;
  std::vector<std::unique_ptr<StagedSequence>> sequences;

  const StagedSequence* find(SequenceId sequence) const;
  // Stages nothing yet. Errors  NotFound. Throws bad_alloc.
  Result<StagedSequence*> find_or_open(SequenceId sequence);
};

Status not_found(SequenceId sequence);

// Runs `body`, which returns a Status or a Result; memory that the system refuses becomes OutOfMemory.
template <typename Body>
auto guarded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "cache", "cache: the system refused memory");
  } catch (const std::length_error&) {
    return Status::error(Code::kOutOfMemory, "cache", "cache: more memory than there can be");
  }
}

}  // namespace seriatim
