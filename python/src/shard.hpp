// What Python holds of several processes: a transport written in Python, and a group over one.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "engine.hpp"
#include "seriatim/group.hpp"
#include "seriatim/shard.hpp"
#include "seriatim/shard_cache.hpp"
#include "unlocked.hpp"

namespace seriatim::python {

// One rank among threads of this process.
struct ThreadEndHandle {
  std::shared_ptr<Transport> transport;
};

// Calls of one group take turns.
struct GroupHandle {
  GroupHandle(Group met, std::shared_ptr<EngineHandle> with, std::shared_ptr<Executor> on, Engine host)
      : group(std::move(met)),
        engine_handle(std::move(with)),
        executor(std::move(on)),
        engine(std::move(host), group) {}
  GroupHandle(const GroupHandle&) = delete;
  GroupHandle& operator=(const GroupHandle&) = delete;

  std::mutex turn;
  Group group;
  std::shared_ptr<EngineHandle> engine_handle;
  std::shared_ptr<Executor> executor;
  ShardedEngine engine;
};

struct ShardedCacheHandle {
  std::shared_ptr<GroupHandle> group;
  std::unique_ptr<ShardedCache> cache;
};

struct ShardedSequenceHandle {
  std::shared_ptr<ShardedCacheHandle> cache;
  SequenceId id = 0;
};

struct ShardedTransactionHandle {
  ShardedTransactionHandle(std::shared_ptr<ShardedCacheHandle> of, ShardedTransaction begun)
      : cache(std::move(of)), transaction(std::move(begun)) {}
  std::shared_ptr<ShardedCacheHandle> cache;
  ShardedTransaction transaction;
  bool ended = false;
};

// One layer of a state of a sequence, or of a sequence in a transaction as it stands at each call.
struct ShardedLayerHandle {
  std::shared_ptr<ShardedCacheHandle> cache;
  std::optional<ShardedSnapshot> snapshot;
  std::shared_ptr<ShardedTransactionHandle> transaction;
  SequenceId sequence = 0;
  std::int64_t layer = 0;

  // Errors  of ShardedTransaction::layer. Call it in the group's turn.
  Result<ShardedLayer> view() const;
};

// Runs `work()` in the group's turn, without the interpreter's lock, and gives what it gives.
template <typename Work>
auto in_turn(GroupHandle& group, const Work& work) {
  const Unlocked unlocked;
  const std::lock_guard turn(group.turn);
  return work();
}

// plan() and attend() of a group and of a layer.
void bind_sharded_steps(nanobind::class_<GroupHandle>& group, nanobind::class_<ShardedLayerHandle>& layer);
void bind_sharded_cache(nanobind::module_& module, nanobind::class_<GroupHandle>& group);

// A transport whose calls are methods of a Python object: rank, size (attributes), all_gather(block, blocks),
// send(to, bytes), receive(from_, bytes) and broadcast(root, bytes), of memoryviews. An exception is the loss of a
// rank, unless it is a seriatim.Error, which keeps its code.
std::shared_ptr<Transport> transport_of(nanobind::handle object);

}  // namespace seriatim::python
