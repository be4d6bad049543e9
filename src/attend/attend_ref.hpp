// The definition of attention over a row, for the query heads of one kv head. Scalar, short, never tuned.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/attend.hpp"

namespace seriatim {

struct AttendProblem {
  const LayerView* layer = nullptr;
  std::int64_t kv_head = 0;
  ConstTensor query;                  // [query_heads, head_dim]
  std::span<const std::int32_t> row;  // checked
  std::span<const float> sinks;       // [query_heads] or empty
  float* scratch = nullptr;           // attend_scratch_floats(geometry)
  Tensor output;                      // [query_heads, value_dim]
  std::span<float> lse;               // [query_heads] or empty
  const float* biases = nullptr;      // [row.size()] or null
};

// Writes the outputs of the kv head's query heads. Gives the first of them that overflowed, or -1.
std::int64_t attend_kv_head_ref(const AttendProblem& problem);

// The kv head's query heads of the partial of one split, which the row has.
void split_partial_ref(const AttendProblem& problem, std::int64_t split, float* partial);

// The same, folded into a partial that later ones can be folded into; empty where nothing was.
void fold_state_ref(const AttendProblem& problem, const float* partials, std::int64_t count, float* state);

// The kv head's query heads of `count` partials, folded and written. Gives the first that overflowed, or -1.
std::int64_t fold_partials_ref(const AttendProblem& problem, const float* partials, std::int64_t count);

}  // namespace seriatim
