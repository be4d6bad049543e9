// One batch of an attend: queries whose partials fit in memory together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "shard/engine.hpp"
#include "shard/spread.hpp"
#include "step/ask_table.hpp"

namespace seriatim {

// What a rank folds of a query: the partials of its own splits, one after the other.
struct OwnPartials {
  std::vector<float> floats;
  std::vector<std::int64_t> first;  // of each query of the batch, in floats; one more at the end

  std::span<const float> of(std::int64_t query) const {
    const auto at = static_cast<std::size_t>(query);
    return std::span(floats).subspan(static_cast<std::size_t>(first[at]),
                                     static_cast<std::size_t>(first[at + 1] - first[at]));
  }
};

// Queries of one ask within a batch.
struct AskRange {
  std::size_t ask = 0;
  std::int64_t first = 0;  // query of the ask
  std::int64_t count = 0;
  std::int64_t place = 0;  // of its first query in the batch
};

struct AttendStep {
  std::span<const ShardedAttendAsk> asks;
  ConstRows rows;  // of the batch's first query and on
  std::vector<AskRange> ranges;
  std::vector<RowSpread> spreads;  // of each query of the batch

  const Geometry& geometry() const { return *asks.front().layer->local.geometry; }
  std::int64_t queries() const { return static_cast<std::int64_t>(spreads.size()); }
  // Bytes of one token's keys and values.
  std::int64_t token_bytes() const;
};

// Queries of an ask, as a view.
inline ConstTensor some_queries(const AttendStep& step, const AskRange& range) {
  ConstTensor view = step.asks[range.ask].queries.queries;
  view.data = view.at(range.first);
  view.shape[0] = range.count;
  return view;
}

// Sends the keys and values of border splits to those that reduce them, and reduces this rank's splits.
// Errors  PeerLost. OutOfMemory. Throws bad_alloc.
Status own_partials(const AttendStep& step, Engine& engine, Group& group, OwnPartials& own);

// How a batch is finished, equal on all ranks.
struct FinishPlan {
  bool chain = false;
  int finisher = 0;
  std::vector<int> ranks;  // that reduce splits, ascending

  static FinishPlan make(const AttendStep& step, int ranks, const AttendOptions& options);
};

// Dense results of a batch, on the finisher.
struct BatchResult {
  Tensor output;  // [queries, query_heads, value_dim]
  Tensor lse;     // [queries, query_heads], or empty
  std::int64_t overflow_query = -1;
  std::int64_t overflow_head = -1;
};

// Brings every rank's partials together on the finisher and folds them there.
// Errors  PeerLost. OutOfMemory. Throws bad_alloc.
Status finish_batch(const AttendStep& step, const FinishPlan& plan, const OwnPartials& own, Engine& engine,
                    Group& group, BatchResult& result);

}  // namespace seriatim
