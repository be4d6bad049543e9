// Select: scores -> the set of groups.
//
// The set is the min(K, G) best groups under one total order: score descending, then group ascending. -0 equals +0; the
// infinities are scores like any other. The set is handed out in ascending order, because time chooses the order.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/status.hpp"

namespace seriatim {

enum class NanPolicy : std::uint8_t {
  kRefuse,   // a NaN score is an error
  kExclude,  // a NaN group is never chosen; the row gets shorter
};

// Scratch entries that select_groups needs for G groups, in int32.
std::int64_t select_scratch_entries(std::int64_t groups);

// Takes   scores [G] f32; keep = K >= 0; scratch of at least select_scratch_entries(G)
// Gives   chosen[0 .. return) ascending group numbers; what lies past them is untouched. chosen holds min(K, G)
//         or more. The value is how many were chosen: min(K, G), less where NaN groups are excluded.
//         chosen_scores[0 .. return): their scores, unless it is empty; it holds as many as chosen must.
// Errors  InvalidArgument: K negative, chosen, chosen_scores or scratch too small, G at or past 2^31.
//         NotANumber: index = the first NaN's group. Nothing is written on error. `row` is named in the error.
// Memory  none. Threads  any number at once on different outputs. Source  contract section 2, rules 1 and 2.
Result<std::int64_t> select_groups(std::span<const float> scores, std::int64_t keep, NanPolicy nan,
                                   std::span<std::int32_t> scratch, std::span<std::int32_t> chosen,
                                   std::int64_t row = -1, std::span<float> chosen_scores = {});

}  // namespace seriatim
