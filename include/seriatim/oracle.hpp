// Oracle: independent plain definitions, to hold the path against. They share no code with what they check.
//
// Dense causal attention in the canonical numerics, from plain contiguous tensors, up to B + r - 1 visible tokens:
// there a sparse row holds everything, so both must give the same bytes. Beyond that ceiling the two answer different
// questions, and a dense answer would cost memory for every token, so it is refused. The f64 twins have no ceiling:
// they say what the exact result is, not what its bits are.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Keys and values of the tokens of one sequence, oldest first.
struct DenseTokens {
  ConstTensor keys;    // [T, kv_heads, head_dim] in kv_dtype
  ConstTensor values;  // [T, kv_heads, value_dim] in kv_dtype; empty exactly when they alias the keys
};

// The dense causal row.
// Gives   row[0 .. return) = every position of `run`; what lies past them is untouched
// Errors  InvalidArgument: `visible`: above B + r - 1 tokens, or a run that is not admissible; `row`: too small.
// Memory  none. Source  contract section 2.
Result<std::int64_t> dense_row(const Geometry& geometry, VisibleRun run, std::span<std::int32_t> row);

// One query over the first `visible` tokens.
// Takes   query [query_heads, head_dim] in kv_dtype; tokens: `visible` or more, of which the later ones are not read
//         sinks [query_heads] or empty
// Gives   output [query_heads, value_dim] f32, bf16 or f16; lse [query_heads] or empty
// Errors  InvalidArgument: first of all `visible`, negative or above B + r - 1: nothing is read or allocated then but
//         the Status. Shapes, strides, dtypes. NotFinite: a query, key, value or sink. OutOfMemory. Outputs are
//         untouched. Overflow: index = the first head whose logits pass f32 or outputs their dtype; NaN there, all
//         others are right.
// Memory  at most 3 (B + r - 1) + value_dim floats. Source  contract sections 4 and 5.
Status dense_attend(const Geometry& geometry, std::int64_t visible, ConstTensor query, const DenseTokens& tokens,
                    std::span<const float> sinks, Tensor output, std::span<float> lse);

// The score in f64, each named step exact to f64.
// Takes   query [index_heads, index_dim] and pooled [G, index_dim] in index_dtype, finished; head_weights [index_heads]
//         f32, or empty
// Gives   scores [G]. Errors  InvalidArgument: shapes, strides, dtypes, sizes. Memory  none.
// Source  contract section 3.
Status score_f64(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, ConstTensor pooled,
                 std::span<double> scores);

// Attention in f64 over any of the tokens: one softmax, no splits.
// Takes   as dense_attend; row: which tokens, counted from the oldest, in any order, each below T
// Gives   output [query_heads * value_dim]; lse [query_heads]
// Errors  InvalidArgument: shapes, strides, dtypes, sizes, an entry of `row`. OutOfMemory. Source  contract section 4.
Status attend_f64(const Geometry& geometry, ConstTensor query, const DenseTokens& tokens,
                  std::span<const std::int64_t> row, std::span<const float> sinks, std::span<double> output,
                  std::span<double> lse);

}  // namespace seriatim
