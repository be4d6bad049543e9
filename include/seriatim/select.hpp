// Select: scores -> the set of groups.
//
// The set is the min(K, G) best groups under one total order: score descending, then group ascending. -0 equals +0; the
// infinities are scores like any other. The set is handed out in ascending order, because time chooses the order.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"
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

// Groups that are chosen whatever their scores, a class above +inf; those scores are never read.
struct ForcedGroups {
  std::int64_t first = 0;   // the oldest so many of what exists
  std::int64_t newest = 0;  // the newest so many
  bool outside = false;     // beside `keep`; else they take their places of it

  // The most groups that are chosen.
  std::int64_t most(std::int64_t keep) const { return keep + (outside ? first + newest : 0); }
};
inline ForcedGroups forced_groups(const Geometry& geometry) {
  return {geometry.forced_first(), geometry.forced_newest(), geometry.forced_outside()};
}

// The same with forced groups.
// Gives   chosen holds min(forced.most(K), G) or more.
// Errors  as select_groups. InvalidArgument: a negative number, or more forced than K where they are inside.
//         NotANumber: of groups that are not forced alone.
// Source  contract section 11.
Result<std::int64_t> select_forced(std::span<const float> scores, std::int64_t keep, ForcedGroups forced, NanPolicy nan,
                                   std::span<std::int32_t> scratch, std::span<std::int32_t> chosen,
                                   std::int64_t row = -1);

}  // namespace seriatim
