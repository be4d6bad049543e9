// ShardedCache: sequences whose tokens lie spread over the ranks of a group, with the promises of a Cache over all of
// them: prepared everywhere, then published everywhere or nowhere.
//
// A sequence has planned borders, its cuts: rank k takes positions cuts[k - 1] .. cuts[k] - 1, the last rank all that
// come after. Every rank knows every sequence's run and cuts, and keeps its own range in a Cache as a sequence whose
// anchor is where the range begins; so groups, pooled keys and bits are those of one process.
//
// All ranks make the same calls with equal arguments, in the same order. A refusal of some ranks is the same error on
// all, naming the lowest, and nothing has changed anywhere. After PeerLost nothing of the call is published on this
// rank and the group is of no more use: start over from the last save.
// Threads  one call at a time per group; snapshot() beside anything.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "seriatim/cache.hpp"
#include "seriatim/group.hpp"
#include "seriatim/shard.hpp"

namespace seriatim {

struct ShardedCacheOptions {
  CacheOptions cache;       // of this rank; capacity may differ from rank to rank
  double imbalance = 0.25;  // how much fuller than its share a rank may be before rebalance(sequence) moves anything
};

// An immutable state of one sequence, this rank's part of it.
class ShardedSnapshot {
 public:
  ShardedSnapshot(Snapshot local, VisibleRun run, std::vector<std::int64_t> borders)
      : local_(std::move(local)), run_(run), borders_(std::move(borders)) {}
  VisibleRun run() const { return run_; }
  const std::vector<std::int64_t>& borders() const { return borders_; }
  const Snapshot& local() const { return local_; }
  ShardedLayer layer(std::int64_t layer) const { return {local_.layer(layer), run_, borders_}; }

 private:
  Snapshot local_;
  VisibleRun run_;
  std::vector<std::int64_t> borders_;
};

class ShardedCache;

// Staged appends, published together on all ranks or not at all. A moved-from transaction has ended.
class ShardedTransaction {
 public:
  ShardedTransaction(ShardedTransaction&&) noexcept;
  ShardedTransaction& operator=(ShardedTransaction&&) noexcept;
  ~ShardedTransaction();  // rolls back what was not committed; sends nothing

  // Every rank holds the tokens; each stages those of its range.
  // Errors  as Transaction::append. Then nothing of the call is staged on any rank.
  Status append(SequenceId sequence, std::int64_t layer, const TokenBatch& tokens);
  // Rank `holder` alone holds the tokens and sends them to their owners; the others give `count` and nothing else.
  // Errors  as append. InvalidArgument: there is no such rank, or another count.
  Status append_from(int holder, SequenceId sequence, std::int64_t layer, std::int64_t first_position,
                     std::int64_t count, const TokenBatch& tokens);

  // The staged state. Sends nothing. Errors and memory as Transaction::layer.
  Result<ShardedLayer> layer(SequenceId sequence, std::int64_t layer) const;

  // Publishes everything, or the first `tokens` staged tokens of each sequence, and ends the transaction.
  // Errors  as Transaction::commit and commit_prefix; where layers are at different frontiers the transaction stays
  //         open. After any other error it has ended and nothing is published.
  Status commit();
  Status commit_prefix(std::int64_t tokens);
  void rollback();

 private:
  friend class ShardedCache;
  struct Staged;
  explicit ShardedTransaction(std::unique_ptr<Staged> staged);
  std::unique_ptr<Staged> staged_;
};

class ShardedCache {
 public:
  // Takes   the group, alive as long as this and its transactions
  // Errors  as Cache::create. Unsupported: an index store. InvalidArgument: imbalance negative or not finite.
  static Result<std::unique_ptr<ShardedCache>> create(const Geometry& geometry, ShardedCacheOptions options,
                                                      Group& group);
  ~ShardedCache();

  const Geometry& geometry() const;
  Group& group() const;
  // This rank's part, to be looked at: bytes, geometry.
  const Cache& local() const;

  // A new, empty sequence.
  // Takes   cuts [ranks - 1]: ascending, whole groups from the anchor; empty: the last rank takes every token
  // Errors  InvalidArgument: anchor, cuts. OutOfMemory.
  Result<SequenceId> add(std::int64_t anchor = 0, std::span<const std::int64_t> cuts = {});
  // Cuts that give every rank about as many whole pages of a run.
  std::vector<std::int64_t> even_cuts(VisibleRun run) const;

  // As the Cache's. Errors  those too. reset() moves the cuts with the anchor.
  Status remove(SequenceId sequence);
  Status reset(SequenceId sequence, std::int64_t anchor = 0);
  Status truncate(SequenceId sequence, std::int64_t tokens);
  Result<SequenceId> fork(SequenceId sequence);
  // Where groups shift against the anchor, every border moves with them: a rank gives the first tokens of its range,
  // fewer than a group, to the one before, and pools the rest again. InvalidArgument: a transaction is open, too.
  Status evict_prefix(SequenceId sequence, std::int64_t tokens);

  // Moves tokens between ranks until the ranges are those of `cuts`. Tokens that go to lower ranks cost their bytes;
  // a rank that gets tokens before its own copies what it has.
  // Errors  InvalidArgument: cuts, a transaction is open. Capacity. OutOfMemory.
  Status rebalance(SequenceId sequence, std::span<const std::int64_t> cuts);
  // By even_cuts(), if a rank holds more than (1 + imbalance) times its share of the tokens: until then the last rank
  // takes what is appended.
  Status rebalance(SequenceId sequence);

  Result<ShardedTransaction> begin();
  // Sends nothing. Errors  NotFound.
  Result<ShardedSnapshot> snapshot(SequenceId sequence) const;
  std::vector<SequenceId> sequences() const;

  // Writes sequences to a folder that all ranks share: each rank one file in the format of Cache::save(), then rank 0
  // the manifest, whose rename is the commit. Until then what was saved there before is what a restore finds; files of
  // earlier saves are removed afterwards.
  // Errors  as Cache::save; argument "manifest": the new save stands there, but may not outlast a loss of power.
  // Threads  saves to one folder must take turns.
  Status save(const std::string& folder, std::span<const SequenceId> sequences) const;
  Status save(const std::string& folder) const;

  // Adds every sequence of a folder, or of one file that a Cache has saved, or none.
  // Takes   mode: how a rank's file comes in where as many ranks restore as saved, which keep their ranges. Any other
  //         number of ranks reads the files it needs, verified, copies what it takes and spreads it by even_cuts().
  // Gives   the sequences in the order in which they were saved
  // Errors  as Cache::restore. NotFound: neither a manifest nor a file. Corrupt: a manifest that contradicts itself or
  //         its files. InvalidArgument: ranks that see different manifests.
  Result<std::vector<RestoredSequence>> restore(const std::string& path, RestoreMode mode = RestoreMode::kCopy);

  struct Impl;

 private:
  explicit ShardedCache(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace seriatim
