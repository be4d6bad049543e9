// The asks of one call, admitted: what the host and a device work on.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/step.hpp"
#include "step/ask_table.hpp"

namespace seriatim {

// The visible run of a query at `position`.
inline VisibleRun visible_run(const LayerView& layer, std::int64_t position) {
  return {layer.run.anchor, position - layer.run.anchor + 1};
}

// There is one ask at least; all have the first one's geometry.
struct PlanBatch {
  std::span<const PlanAsk> asks;
  AskTable& table;
  NanPolicy nan;
  Rows rows;
  const Candidates* candidates = nullptr;  // to be given instead of rows

  const Geometry& geometry() const { return *asks.front().layer->geometry; }
  VisibleRun run_of(std::size_t ask, std::int64_t query) const {
    return visible_run(*asks[ask].layer, asks[ask].queries.positions[static_cast<std::size_t>(query)]);
  }
  // Where everything complete fits the budget the set is known, unless NaN groups must be found to be left out.
  bool needs_scores(std::int64_t visible_tokens) const {
    return candidates != nullptr || nan == NanPolicy::kExclude || visible_tokens > geometry().row_capacity();
  }
};

struct AttendBatch {
  std::span<const AttendAsk> asks;
  AskTable& table;
  ConstRows rows;
  Tensor output;
  Tensor lse;  // or empty

  const Geometry& geometry() const { return *asks.front().layer->geometry; }
  // Which of all rows a kv head reads for a query.
  std::int64_t row_of(std::int64_t query, std::int64_t kv_head) const {
    return query * geometry().selections() + geometry().selection_of(kv_head);
  }
};

// The queries of one ask, the partials of some splits of their rows.
struct PartialBatch {
  AttendBatch asked;
  std::int64_t first_split;
  std::int64_t splits;
  std::span<float> partials;
};

// Partials of some queries, to be folded.
struct FoldBatch {
  const Geometry& geometry;
  std::span<const float> partials;
  std::int64_t splits;
  std::span<const float> sinks;
  Tensor output;
  Tensor lse;               // or empty
  std::span<float> states;  // [Q][attend_partial_floats], instead of an output; or empty
  std::int64_t count = -1;  // Q, where there is no output

  std::int64_t queries() const { return count >= 0 ? count : output.shape[0]; }
};

// What an overflow is called.
Status overflow_of(std::int64_t query, std::int64_t head);
Status overflow_at(const AttendBatch& batch, std::int64_t query, std::int64_t head);
// Where a NaN score is.
struct NanPlace {
  std::int64_t group = -1;
  std::int64_t unit = -1;  // of the query's visible units, with pooling `unit_max`
  std::int64_t selection = 0;
};
// What it is called.
Status nan_of(std::int64_t query, const NanPlace& place, std::int64_t selections = 1);
Status nan_at(const PlanBatch& batch, std::size_t ask, std::int64_t query, const NanPlace& place);

}  // namespace seriatim
