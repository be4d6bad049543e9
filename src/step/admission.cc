#include "step/admission.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attend/attend_admit.hpp"
#include "base/admit.hpp"
#include "base/checked.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "step/first_fault.hpp"
#include "step/for_units.hpp"

namespace seriatim {
namespace {

Status invalid(std::string_view argument, std::string_view what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

// `first` is the first ask's geometry.
Status admit_layer(const LayerView* layer, const Geometry* first) {
  if (layer == nullptr || layer->geometry == nullptr) return invalid("layer", "null");
  if (first != nullptr && !(*layer->geometry == *first)) {
    return invalid("layer", "its geometry is not that of the first ask; one call serves one geometry");
  }
  return {};
}

}  // namespace

Result<std::int64_t> admit_positions(const LayerView& layer, std::span<const std::int64_t> positions,
                                     std::int64_t queries) {
  if (static_cast<std::int64_t>(positions.size()) != queries) {
    return invalid("positions", formatted("{} for {} queries", positions.size(), queries));
  }
  std::int64_t most = 0;
  for (std::int64_t q = 0; q < queries; ++q) {
    const std::int64_t position = positions[static_cast<std::size_t>(q)];
    if (position < layer.run.anchor || position - layer.run.anchor >= layer.run.tokens) {
      return invalid("positions",
                     formatted("{} of query {} is outside the {} tokens from {} that the layer holds", position, q,
                               layer.run.tokens, layer.run.anchor),
                     {q, -1});
    }
    most = std::max(most, visible_run(layer, position).tokens);
  }
  return most;
}

namespace {

Status admit_queries(const LayerView& layer, const IndexQueries& queries) {
  const Geometry& geometry = *layer.geometry;
  if (layer.pooled.groups != geometry.index_keys(layer.run.tokens)) {
    return invalid("layer", "it has no index; attend over the rows of one that has");
  }
  if (Status s = admit_view("index_queries", queries.queries, geometry.index_dtype(),
                            {-1, geometry.index_heads(), geometry.index_dim()});
      !s.ok()) {
    return s;
  }
  if (left_out(queries.head_weights)) return {};
  return admit_view("index_head_weights", queries.head_weights, DType::kF32,
                    {queries.queries.shape[0], geometry.index_heads()});
}

Status admit_queries(const LayerView& layer, const AttendQueries& queries) {
  const Geometry& geometry = *layer.geometry;
  if (Status s = admit_view("queries", queries.queries, query_dtype(geometry, queries.queries),
                            {-1, geometry.query_heads(), geometry.head_dim()});
      !s.ok()) {
    return s;
  }
  return admit_sinks(geometry, queries.sinks);
}

template <typename Ask>
Status admit_asks(std::span<const Ask> asks, AskTable& table) {
  table.clear();
  for (std::size_t a = 0; a < asks.size(); ++a) {
    const Ask& ask = asks[a];
    const auto fault = [&](const Status& status) { return at_ask(status, a, asks.size()); };
    if (Status s = admit_layer(ask.layer, a == 0 ? nullptr : asks.front().layer->geometry); !s.ok()) return fault(s);
    if (Status s = admit_queries(*ask.layer, ask.queries); !s.ok()) return fault(s);
    const std::int64_t queries = ask.queries.queries.shape[0];
    const auto visible = admit_positions(*ask.layer, ask.queries.positions, queries);
    if (!visible.ok()) return fault(visible.status());
    table.add(queries, *visible);
  }
  return {};
}

}  // namespace

Status admit_plan_asks(std::span<const PlanAsk> asks, AskTable& table) { return admit_asks(asks, table); }

Status admit_plan(std::span<const PlanAsk> asks, const Rows& rows, AskTable& table) {
  if (Status s = admit_asks(asks, table); !s.ok()) return s;
  const std::int64_t capacity = asks.front().layer->geometry->row_capacity();
  if (table.queries() > 0 && (rows.positions == nullptr || rows.counts == nullptr || rows.stride < capacity)) {
    return invalid("rows", formatted("no memory, or a stride of {} where {} is needed", rows.stride, capacity));
  }
  const auto all = checked_product({table.queries(), asks.front().layer->geometry->selections()});
  if (!all) return Status::error(Code::kOverflow, "rows", "rows: their number does not fit 64 bits");
  return admit_apart("rows", dense_view(static_cast<void*>(rows.positions), DType::kI32, {*all, rows.stride}),
                     "their counts", dense_view(static_cast<void*>(rows.counts), DType::kI32, {*all}));
}

Status admit_attend_asks(std::span<const AttendAsk> asks, const ConstRows& rows, AskTable& table) {
  if (Status s = admit_asks(asks, table); !s.ok()) return s;
  if (table.queries() > 0 && (rows.positions == nullptr || rows.counts == nullptr)) return invalid("rows", "no memory");
  return {};
}

Status admit_outputs(const Geometry& geometry, std::int64_t queries, const Tensor& output, const Tensor& lse) {
  const std::int64_t heads = geometry.query_heads();
  if (!is_float(output.dtype)) return invalid("output", formatted("dtype {}", dtype_name(output.dtype)));
  if (Status s = admit_view("output", output, output.dtype, {queries, heads, geometry.value_dim()}); !s.ok()) return s;
  if (left_out(lse)) return {};
  if (Status s = admit_view("lse", lse, DType::kF32, {output.shape[0], heads}); !s.ok()) return s;
  const bool aligned = reinterpret_cast<std::uintptr_t>(lse.data) % alignof(float) == 0;
  if (lse.stride_bytes[1] != dtype_bytes(DType::kF32) || !aligned) {
    return invalid("lse", "heads are not contiguous and aligned");
  }
  return admit_apart("lse", lse, "output", output);
}

Status admit_attend(std::span<const AttendAsk> asks, const ConstRows& rows, const Tensor& output, const Tensor& lse,
                    AskTable& table) {
  if (Status s = admit_attend_asks(asks, rows, table); !s.ok()) return s;
  return admit_outputs(*asks.front().layer->geometry, table.queries(), output, lse);
}

namespace {

Status admit_biases(const ConstRows& rows, std::int64_t query, std::int64_t number) {
  const float* biases = rows.row_biases(query);
  for (std::int64_t i = 0; biases != nullptr && i < rows.counts[query]; ++i) {
    if (std::isfinite(biases[i])) continue;
    return Status::error(Code::kNotFinite, "biases",
                         formatted("biases: entry {} of query {} is {}", i, number, biases[i]), {number, i});
  }
  return {};
}

}  // namespace

Status admit_rows(const AttendBatch& batch, Executor& executor) {
  const std::int64_t selections = batch.geometry().selections();
  const auto admit_one = [&](std::int64_t query) -> Status {
    const AskTable::Place place = batch.table.of_query(query);
    const AttendAsk& ask = batch.asks[place.ask];
    const VisibleRun run = visible_run(*ask.layer, ask.queries.positions[static_cast<std::size_t>(place.number)]);
    for (std::int64_t row = query * selections; row < (query + 1) * selections; ++row) {
      const std::int32_t count = batch.rows.counts[row];
      if (count < 0 || count > batch.rows.stride) {
        return invalid("rows", formatted("a count of {} in a stride of {}", count, batch.rows.stride),
                       {place.number, -1});
      }
      if (Status s = admit_attend(*ask.layer, run, row_of(ask.queries.queries, place.number), batch.rows.row(row),
                                  place.number);
          !s.ok()) {
        return s;
      }
      if (Status s = admit_biases(batch.rows, row, place.number); !s.ok()) return s;
    }
    return Status();
  };
  FirstFault fault;
  const auto look_at = [&](std::int64_t query, int) {
    if (!admit_one(query).ok()) fault.note(query);
  };
  // Few are looked at sooner than others could be woken.
  constexpr std::int64_t kFewElements = std::int64_t{1} << 17;
  const Geometry& geometry = batch.geometry();
  const std::int64_t each = geometry.query_heads() * geometry.head_dim() + selections * geometry.row_capacity();
  for_units(batch.table.queries() < kFewElements / each ? serial_executor() : executor, batch.table.queries(), look_at);
  if (fault.place() == FirstFault::kNone) return {};
  return at_ask(admit_one(fault.place()), batch.table.of_query(fault.place()).ask, batch.asks.size());
}

}  // namespace seriatim
