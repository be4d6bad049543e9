// What plan() and attend() ask of a call before any place works on it, the same for all places.
#pragma once

#include <span>

#include "seriatim/step.hpp"
#include "step/ask_table.hpp"
#include "step/batch.hpp"

namespace seriatim {

// The queries' positions.
// Gives   the most tokens that a query sees
// Errors  InvalidArgument: another count than `queries`, or a position the layer does not hold (row = query).
Result<std::int64_t> admit_positions(const LayerView& layer, std::span<const std::int64_t> positions,
                                     std::int64_t queries);

// Numbers the asks' queries in `table`, which has room for all asks.
// Errors  InvalidArgument, as Engine::plan, for the first ask at fault and in it the first query.
Status admit_plan(std::span<const PlanAsk> asks, const Rows& rows, AskTable& table);

// The asks of plan() alone, for candidates.
Status admit_plan_asks(std::span<const PlanAsk> asks, AskTable& table);

// The same for attend(), but for what admit_rows() looks at. Errors  also NotFinite: sinks.
Status admit_attend(std::span<const AttendAsk> asks, const ConstRows& rows, const Tensor& output, const Tensor& lse,
                    AskTable& table);
// `queries` -1: any count.
Status admit_outputs(const Geometry& geometry, std::int64_t queries, const Tensor& output, const Tensor& lse);
// The layers and queries of attend() alone, for partials.
Status admit_attend_asks(std::span<const AttendAsk> asks, const ConstRows& rows, AskTable& table);

// Every query's elements and row.
// Errors  as attend_row, for the first query.
Status admit_rows(const AttendBatch& batch, Executor& executor);

}  // namespace seriatim
