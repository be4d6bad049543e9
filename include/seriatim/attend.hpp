// Attend: a query and the keys and values of its row, where they lie -> output and log-sum-exp.
//
// Grouped-query attention over the row alone, reduced in row order: splits of 128 entries, each a chain, folded in
// order (contract section 5). Nothing outside the row is read, so the rest of the cache may hold NaN or be unmapped.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/layer_view.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Entries of a row that are reduced together: a split (contract section 5). Cut by place in the row.
inline constexpr std::int64_t kSplitEntries = 128;

// What one split of one query's row gives the query heads before splits are folded, as everyone may read it:
//   m [query_heads]              the largest logit
//   den [query_heads]            the sum of exp(logit - m)
//   o [query_heads][value_dim]   the values' sums, weighted by exp(logit - m)
// one after the other, f32. A split past the row's end has m = -inf, den = 0 and o = 0, and is skipped by the fold. A
// head whose logits passed f32 has NaN in all of its places.
// Gives   the floats of one partial. Source  contract section 5.
std::int64_t attend_partial_floats(const Geometry& geometry);

// Scratch of one attend_row, in floats.
std::int64_t attend_scratch_floats(const Geometry& geometry);

// Takes   layer: the keys and values; run: the query's visible run, inside layer.run
//         query [query_heads, head_dim] in kv_dtype or f32, finite
//         row: strictly ascending positions inside `run`, any width (see check_row for the canonical ones)
//         sinks [query_heads] f32 or empty: one more logit per head, reduced first as a split of its own (m = sink,
//         den = 1, o = 0)
//         scratch: attend_scratch_floats(geometry)
// Gives   output [query_heads, value_dim] f32, bf16 or f16, rounded once; lse [query_heads] or empty: m + log(den).
//         A row of width 0 gives zeros and an lse of -inf (with a sink: zeros and the sink).
// Errors  InvalidArgument: shapes, strides, dtypes, an entry outside the run. NotChronological. NotFinite: a query
//         element or a sink. Outputs are untouched by these.
//         Overflow: finite input, but a logit passed f32 or an output its dtype; index = the first head. The outputs
//         and lse of every such head are NaN, all others are right. `row_number` is named in errors.
// Memory  none. Threads  any number at once on different outputs and scratch. Source  contract sections 4 and 5.
Status attend_row(const LayerView& layer, VisibleRun run, ConstTensor query, std::span<const std::int32_t> row,
                  std::span<const float> sinks, std::span<float> scratch, Tensor output, std::span<float> lse,
                  std::int64_t row_number = -1);

}  // namespace seriatim
