// Rows planned and attended apart: several layers may attend what one of them planned, and a layer may have a window.
#include <algorithm>
#include <string>

#include "borrowed_tensors.hpp"

namespace seriatim::python {
namespace {

// The queries of a sequence whose slots hold tokens: first .. last - 1 of S.
struct RealQueries {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

RealQueries real_queries(const Runs& runs, std::int64_t b, std::int64_t slots, std::int64_t queries) {
  RealQueries real;
  real.first = std::clamp<std::int64_t>(runs.first[static_cast<std::size_t>(b)] - (slots - queries), 0, queries);
  real.last = std::clamp<std::int64_t>(runs.last[static_cast<std::size_t>(b)] - (slots - queries), real.first, queries);
  return real;
}

VisibleRun run_of(const Runs& runs, std::int64_t b) {
  const std::int64_t first = runs.first[static_cast<std::size_t>(b)];
  return {first, runs.last[static_cast<std::size_t>(b)] - first};
}

std::int64_t longest(const Runs& runs) {
  std::int64_t tokens = 0;
  for (std::size_t b = 0; b < runs.first.size(); ++b) tokens = std::max(tokens, runs.last[b] - runs.first[b]);
  return tokens;
}

Status of_sequence(const Status& status, std::int64_t b) {
  if (status.ok()) return status;
  return Status::error(status.code(), status.argument(),
                       std::string(status.message()) + " (sequence " + std::to_string(b) + ")",
                       {b, status.place().row});
}

// Entries before the first -1. Should one come after it, the row is not ascending, and is refused where it is attended.
std::int32_t count_of(const std::int32_t* row, std::int64_t width) {
  return static_cast<std::int32_t>(std::find(row, row + width, kRowPadding) - row);
}

}  // namespace

Status BorrowedLayer::plan(const PlanCall& call) {
  const std::lock_guard lock(turn_);
  const std::int64_t sequences = call.index_queries.shape[0];
  const std::int64_t queries = call.index_queries.shape[1];
  const DType index = geometry_.index_dtype();
  if (Status s =
          admit("index_queries", call.index_queries, index, {-1, -1, geometry_.index_heads(), geometry_.index_dim()});
      !s.ok())
    return s;
  if (!call.head_weights.empty()) {
    if (Status s = admit("head_weights", call.head_weights, DType::kF32, {sequences, queries, geometry_.index_heads()});
        !s.ok())
      return s;
  }
  if (Status s = admit("panels", call.panels, index, {sequences, -1, geometry_.index_dim(), kPanel}); !s.ok()) return s;
  if (!dense_from(call.panels, 1)) return misfit("panels", "the panels of a sequence are not dense");
  if (Status s = admit("rows", call.rows, DType::kI32, {sequences, queries, geometry_.row_capacity()}); !s.ok())
    return s;
  if (!dense_from(call.rows, 1)) return misfit("rows", "not dense");
  if (queries > call.slots) return misfit("index_queries", "more of them than slots");
  if (Status s = admit_runs(call.runs, sequences, call.slots); !s.ok()) return s;
  if (Status s = make_workspace(longest(call.runs)); !s.ok()) return s;
  for (std::int64_t b = 0; b < sequences; ++b) {
    if (Status s = of_sequence(plan_sequence(call, b), b); !s.ok()) return s;
  }
  done_ = workspace_->done();
  return {};
}

Status BorrowedLayer::plan_sequence(const PlanCall& call, std::int64_t b) {
  const std::int64_t queries = call.index_queries.shape[1];
  const RealQueries real = real_queries(call.runs, b, call.slots, queries);
  const std::byte* const panels = call.panels.at(b);
  LayerView layer;
  layer.geometry = &geometry_;
  layer.run = run_of(call.runs, b);
  if (Status s = view_panels(call.panels, call.panels_max_abs, &panels, layer); !s.ok()) return s;

  const Tensor rows = row_of(call.rows, b);
  std::memset(rows.data, 0xFF, static_cast<std::size_t>(queries * geometry_.row_capacity() * 4));
  for (std::int64_t q = real.first; q < real.last; q += kBlockQueries) {
    const std::int64_t count = std::min(kBlockQueries, real.last - q);
    positions_.resize(static_cast<std::size_t>(count));
    counts_.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) positions_[static_cast<std::size_t>(i)] = call.slots - queries + q + i;
    IndexQueries block;
    block.queries = slice(row_of(call.index_queries, b), q, count);
    if (!call.head_weights.empty()) block.head_weights = slice(row_of(call.head_weights, b), q, count);
    block.positions = positions_;
    const Rows written{reinterpret_cast<std::int32_t*>(rows.at(q)), geometry_.row_capacity(), counts_.data()};
    if (Status s = workspace_->plan(layer, block, NanPolicy::kRefuse, written); !s.ok()) return s;
  }
  return {};
}

Status BorrowedLayer::admit_rows_call(const RowsCall& call) const {
  const DType kv = geometry_.kv_dtype();
  const std::int64_t sequences = call.queries.shape[0];
  const std::int64_t queries = call.queries.shape[1];
  const std::int64_t heads = geometry_.query_heads();
  if (Status s = admit("queries", call.queries, kv, {-1, -1, heads, geometry_.head_dim()}); !s.ok()) return s;
  if (Status s = admit("keys", call.keys, kv, {sequences, geometry_.kv_heads(), -1, geometry_.head_dim()}); !s.ok())
    return s;
  if (!dense_from(call.keys, 2)) return misfit("keys", "the slots of a head are not dense");
  if (call.values.empty() != geometry_.values_alias_keys())
    return misfit("values", "absent exactly when they alias the keys");
  if (!call.values.empty()) {
    if (Status s = admit("values", call.values, kv,
                         {sequences, geometry_.kv_heads(), call.keys.shape[2], geometry_.value_dim()});
        !s.ok())
      return s;
    if (!dense_from(call.values, 2)) return misfit("values", "the slots of a head are not dense");
  }
  if (!call.rows.empty()) {
    if (Status s = admit("rows", call.rows, DType::kI32, {sequences, queries, -1}); !s.ok()) return s;
    if (!dense_from(call.rows, 1)) return misfit("rows", "not dense");
  }
  if (Status s = admit("output", call.output, call.output.dtype, {sequences, queries, heads, geometry_.value_dim()});
      !s.ok())
    return s;
  if (queries > call.keys.shape[2]) return misfit("queries", "more of them than slots");
  return admit_runs(call.runs, sequences, call.keys.shape[2]);
}

Status BorrowedLayer::attend_rows(const RowsCall& call) {
  const std::lock_guard lock(turn_);
  if (Status s = admit_rows_call(call); !s.ok()) return s;
  if (Status s = make_workspace(longest(call.runs)); !s.ok()) return s;
  for (std::int64_t b = 0; b < call.queries.shape[0]; ++b) {
    if (Status s = of_sequence(attend_rows_of(call, b), b); !s.ok()) return s;
  }
  done_ = workspace_->done();
  return {};
}

Status BorrowedLayer::attend_rows_of(const RowsCall& call, std::int64_t b) {
  const std::int64_t slots = call.keys.shape[2];
  const std::int64_t queries = call.queries.shape[1];
  const RealQueries real = real_queries(call.runs, b, slots, queries);
  const std::byte* const page = call.keys.at(b);
  LayerView layer;
  if (Status s = view_keys(call.keys, call.values, &page, b, run_of(call.runs, b), layer); !s.ok()) return s;
  const Tensor output = row_of(call.output, b);
  zero_fill(slice(output, 0, real.first));
  zero_fill(slice(output, real.last, queries - real.last));

  const std::int64_t width = call.rows.empty() ? geometry_.row_capacity() : call.rows.shape[2];
  for (std::int64_t q = real.first; q < real.last; q += kBlockQueries) {
    const std::int64_t count = std::min(kBlockQueries, real.last - q);
    positions_.resize(static_cast<std::size_t>(count));
    counts_.resize(static_cast<std::size_t>(count));
    if (call.rows.empty()) rows_.resize(static_cast<std::size_t>(count * width));
    const auto* given = call.rows.empty() ? nullptr : reinterpret_cast<const std::int32_t*>(call.rows.at(b, q));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t position = slots - queries + q + i;
      const auto at = static_cast<std::size_t>(i);
      positions_[at] = position;
      if (given != nullptr) {
        counts_[at] = count_of(given + i * width, width);
        continue;
      }
      const std::int64_t begin = std::max(layer.run.anchor, position + 1 - width);
      counts_[at] = static_cast<std::int32_t>(position + 1 - begin);
      for (std::int64_t j = 0; j <= position - begin; ++j)
        rows_[static_cast<std::size_t>(i * width + j)] = static_cast<std::int32_t>(begin + j);
    }
    AttendQueries block;
    block.queries = slice(row_of(call.queries, b), q, count);
    block.positions = positions_;
    block.sinks = call.sinks;
    // attend() reads rows alone; Rows has no read-only form.
    const Rows rows{given != nullptr ? const_cast<std::int32_t*>(given) : rows_.data(), width, counts_.data()};
    if (Status s = workspace_->attend(layer, block, rows, slice(output, q, count), {}); !s.ok()) return s;
  }
  return {};
}

}  // namespace seriatim::python
