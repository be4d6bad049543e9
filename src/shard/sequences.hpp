// What a ShardedCache, its transactions and its files share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "seriatim/shard_cache.hpp"
#include "shard/token_pack.hpp"

namespace seriatim {

struct PositionRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t tokens() const { return std::max<std::int64_t>(end - begin, 0); }
};

inline PositionRange common(const PositionRange& a, const PositionRange& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Where a sequence's tokens lie. Cuts ascend from the anchor on and may lie past the frontier.
struct Spread {
  VisibleRun run;
  std::vector<std::int64_t> cuts;  // [ranks - 1]

  int ranks() const { return static_cast<int>(cuts.size()) + 1; }
  std::int64_t frontier() const { return run.anchor + run.tokens; }
  // Where the rank's range begins, or would begin: the anchor of its local sequence.
  std::int64_t begin(int rank) const { return rank == 0 ? run.anchor : cuts[static_cast<std::size_t>(rank) - 1]; }
  std::int64_t planned_end(int rank) const {
    return rank + 1 == ranks() ? Geometry::kPositions : cuts[static_cast<std::size_t>(rank)];
  }
  // Of positions up to `end`. Empty ranges may have begin > end.
  PositionRange range(int rank, std::int64_t end) const { return {begin(rank), std::min(planned_end(rank), end)}; }
  PositionRange range(int rank) const { return range(rank, frontier()); }
  std::vector<std::int64_t> borders() const {
    std::vector<std::int64_t> borders{run.anchor};
    for (const std::int64_t cut : cuts) borders.push_back(std::min(cut, frontier()));
    borders.push_back(frontier());
    return borders;
  }
};

struct ShardedSequence {
  SequenceId id = 0;
  SequenceId local = 0;  // in the local cache
  Spread spread;
};

struct ShardedCache::Impl {
  Impl(std::unique_ptr<Cache> c, Group& g, TokenPack p, double fuller)
      : cache(std::move(c)), group(g), pack(std::move(p)), imbalance(fuller) {}

  std::unique_ptr<Cache> cache;
  Group& group;
  TokenPack pack;
  double imbalance;
  CacheOptions file_options;  // of a cache that only maps files
  std::int64_t layers = 0;
  std::int64_t page_tokens = 0;
  mutable std::mutex publishing;           // guards `sequences` against snapshot()
  std::vector<ShardedSequence> sequences;  // by ascending id
  SequenceId next_id = 0;
  ShardedTransaction::Staged* open = nullptr;

  // Errors  NotFound.
  Result<ShardedSequence*> find(SequenceId sequence);
  // Besides, InvalidArgument: it is in the open transaction.
  Result<ShardedSequence*> find_unstaged(SequenceId sequence);
  Status none_open() const;

  // Ends a call that changes one sequence: where all ranks are prepared, `next` becomes the sequence and its old local
  // state is forgotten; else the new one is.
  // Takes   mine: why this rank is not prepared, or success
  Status publish(const Call& call, const Status& mine, ShardedSequence* sequence, ShardedSequence& next);
  // The same for a sequence that is new.
  Result<SequenceId> publish_new(const Call& call, const Status& mine, ShardedSequence& next);

  // Builds this rank's part of `next.spread` out of that of `old`, with tokens that other ranks send. All ranks call
  // it.
  // Gives   next.local, also where it fails, unless it is -1
  // Errors  what kept this rank from building its part, after all messages have been sent and taken; what ended the
  //         messages, which ends the group, too.
  Status move(const ShardedSequence& old, ShardedSequence& next);

  void forget(SequenceId local) noexcept;
};

// Errors  InvalidArgument.
Status admit_cuts(const Geometry& geometry, std::int64_t anchor, std::span<const std::int64_t> cuts, int ranks);

// Runs `body`, which returns a Status or a Result; memory that the system refuses becomes OutOfMemory.
template <typename Body>
auto sharded(Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "cache", "cache: the system refused memory");
  }
}

}  // namespace seriatim
