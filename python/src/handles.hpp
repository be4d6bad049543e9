// What Python holds of caches and borrowed memory: handles that keep alive what they read, so that no view can dangle.
//
// Locks are taken without the interpreter's lock, and nobody takes that one while holding one of these.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "arrays.hpp"
#include "engine.hpp"
#include "seriatim/borrow.hpp"
#include "seriatim/cache.hpp"

namespace seriatim::python {

struct CacheHandle {
  std::shared_ptr<EngineHandle> engine;  // null: the default one
  std::shared_ptr<PageAllocator> pages;  // null: the heap; before the cache, so that their memory goes last
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

struct BorrowedHandle;

// One layer of a snapshot, of a sequence in a transaction as it stands at each call, or of borrowed memory.
struct LayerHandle {
  std::shared_ptr<CacheHandle> cache;  // null: borrowed
  std::optional<Snapshot> snapshot;
  std::shared_ptr<TransactionHandle> transaction;
  SequenceId sequence = 0;
  std::int64_t layer = 0;
  std::shared_ptr<BorrowedHandle> borrowed;

  const Geometry& geometry() const;
  // The one given, that of its cache, or the default.
  std::shared_ptr<EngineHandle> engine(const std::shared_ptr<EngineHandle>& given) const;
};

// Arrays of a caller and the view over them. Nothing changes after it was made.
struct BorrowedHandle {
  BorrowedHandle(const Geometry& of) : geometry(of), layer(geometry) {}
  BorrowedHandle(const BorrowedHandle&) = delete;
  BorrowedHandle& operator=(const BorrowedHandle&) = delete;

  const Geometry geometry;
  BorrowedLayer layer;
  std::optional<LayerHandle> index;  // whose pooled keys serve
  std::vector<Input> held;           // the arrays; dropped under the interpreter's lock
};

// The views of several layers, and the locks under which they are valid. Without the interpreter's lock.
class HeldLayers {
 public:
  // Errors  of Transaction::layer; InvalidArgument: an index that has moved on since it was borrowed.
  Status hold(std::span<const LayerHandle* const> layers);
  const LayerView& operator[](std::size_t i) const { return views_[i]; }
  // Errors  Io where a mapped file turned out to be cut short. Ask after reading.
  Status check() const;

 private:
  Result<LayerView> view_of(const LayerHandle& handle) const;

  std::vector<std::shared_lock<std::shared_mutex>> locks_;
  std::vector<LayerView> views_;
};

// Runs `read(const LayerView&)`, which gives a Status. Errors  of `read` and of HeldLayers.
template <typename Read>
Status with_layer(const LayerHandle& handle, Read&& read) {
  HeldLayers held;
  const LayerHandle* const one = &handle;
  if (Status s = held.hold({&one, 1}); !s.ok()) return s;
  if (Status s = read(held[0]); !s.ok()) return s;
  return held.check();
}

}  // namespace seriatim::python
