// What Python holds of a cache: handles that keep alive what they read, so that no view can dangle.
//
// Locks are taken without the interpreter's lock, and nobody takes that one while holding one of these.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>

#include "device.hpp"
#include "seriatim/cache.hpp"

namespace seriatim::python {

struct CacheHandle {
  std::unique_ptr<CacheDevice> device;  // null: the host; first, so that the memory of the cache's pages goes last
  std::unique_ptr<Cache> cache;
};

struct SequenceHandle {
  std::shared_ptr<CacheHandle> cache;
  SequenceId id = 0;
};

// A staged layer's view lives until the next append or the end, so readers share `turn` and those two own it.
struct TransactionHandle {
  std::shared_ptr<CacheHandle> cache;
  std::shared_mutex turn;
  Transaction transaction;
  bool ended = false;

  TransactionHandle(std::shared_ptr<CacheHandle> of, Transaction begun)
      : cache(std::move(of)), transaction(std::move(begun)) {}
};

struct SnapshotHandle {
  std::shared_ptr<CacheHandle> cache;
  Snapshot snapshot;
};

// One layer of a snapshot, or of a sequence in a transaction as it stands at each call.
struct LayerHandle {
  std::shared_ptr<CacheHandle> cache;
  std::optional<Snapshot> snapshot;
  std::shared_ptr<TransactionHandle> transaction;
  SequenceId sequence = 0;
  std::int64_t layer = 0;
};

// Runs `read(const LayerView&)`, which gives a Status. Without the interpreter's lock.
// Errors  of `read`; of Transaction::layer; Io where a mapped file turned out to be cut short.
template <typename Read>
Status with_layer(const LayerHandle& handle, Read&& read) {
  const auto checked = [&](const LayerView& view) {
    if (Status s = read(view); !s.ok()) return s;
    if (view.damaged != nullptr && view.damaged->load()) {
      return Status::error(Code::kIo, "layer", "the mapped file was cut short; what was read past its end is zeros");
    }
    return Status();
  };
  if (handle.snapshot) return checked(handle.snapshot->layer(handle.layer));
  const std::shared_lock turn(handle.transaction->turn);
  const Result<LayerView> view = handle.transaction->transaction.layer(handle.sequence, handle.layer);
  if (!view.ok()) return view.status();
  return checked(*view);
}

}  // namespace seriatim::python
