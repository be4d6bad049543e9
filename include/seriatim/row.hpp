// Row: the set of groups -> the chronological row, with its tail; and the row's checker.
#pragma once

#include <cstdint>
#include <span>

#include "seriatim/geometry.hpp"
#include "seriatim/select.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

inline constexpr std::int32_t kRowPadding = -1;

// Expands chosen groups to token positions and appends the raw tail.
// Takes   run: the query's visible run; groups: strictly ascending, each below geometry.groups(n), at most
//         row_groups() of them
// Gives   row[0 .. return): positions, ascending; row[return .. row.size()) = -1. row holds row_capacity() or more.
// Errors  InvalidArgument: run, a group out of range or order (index = its place in `groups`), too many groups, row too
//         small. The row is untouched on error.
// Memory  none. Source  contract section 2, rules 2 to 4.
Result<std::int64_t> expand_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> groups,
                                std::span<std::int32_t> row, std::int64_t query = -1);

// The whole rule for one query: scores -> row.
// Takes   scores [geometry.groups(n)], of which those of forced groups are not read; scratch of
//         plan_row_scratch_entries(...) int32
// Gives   as expand_row. Errors as select_groups and expand_row; nothing is written on error.
std::int64_t plan_row_scratch_entries(const Geometry& geometry, std::int64_t visible_tokens);
Result<std::int64_t> plan_row(const Geometry& geometry, VisibleRun run, std::span<const float> scores, NanPolicy nan,
                              std::span<std::int32_t> scratch, std::span<std::int32_t> row, std::int64_t query = -1);

// What attention demands of any row: strictly ascending positions inside the visible run.
// Errors  NotChronological: index = the entry at fault. InvalidArgument: an entry outside the run.
Status check_ascending(VisibleRun run, std::span<const std::int32_t> row, std::int64_t query = -1);

// What the contract demands of a canonical row besides: whole groups, the tail complete and last, at most B / r groups,
// the width of section 2, and the forced groups. `exact_width` false admits rows made shorter by excluded NaN groups.
// Errors  as check_ascending; NotChronological also for a partial group or a missing tail.
Status check_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> row, bool exact_width = true,
                 std::int64_t query = -1);

}  // namespace seriatim
