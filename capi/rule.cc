#include "call.hpp"
#include "convert.hpp"
#include "handles.hpp"
#include "seriatim/row.hpp"
#include "seriatim_rule.h"

using namespace seriatim;
using namespace seriatim::capi;

namespace {

// The bounds of Geometry::check_run, for a row that comes without a geometry.
Status check_run(std::int64_t anchor, std::int64_t visible) {
  if (anchor < 0 || anchor >= Geometry::kPositions) return invalid("anchor", "no position");
  if (visible < 0 || visible > Geometry::kPositions - anchor)
    return invalid("visible", "negative, or past the last position");
  return {};
}

}  // namespace

std::int64_t seriatim_select_scratch_entries(std::int64_t groups) {
  return groups < 0 ? -1 : select_scratch_entries(groups);
}

seriatim_status seriatim_select(const float* scores, std::int64_t groups, std::int64_t keep, std::int32_t nan_policy,
                                std::int32_t* scratch, std::int64_t scratch_entries, std::int32_t* chosen,
                                std::int64_t chosen_entries, float* chosen_scores, std::int64_t query,
                                std::int64_t* count, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"count", count}}); !s.ok()) return s;
    NanPolicy nan{};
    std::span<const float> all;
    std::span<std::int32_t> work;
    std::span<std::int32_t> out;
    if (Status s = take_nan_policy(nan_policy, nan); !s.ok()) return s;
    if (Status s = take_array("scores", scores, groups, all); !s.ok()) return s;
    if (Status s = take_array("scratch", scratch, scratch_entries, work); !s.ok()) return s;
    if (Status s = take_array("chosen", chosen, chosen_entries, out); !s.ok()) return s;
    const std::span<float> their_scores(chosen_scores, chosen_scores == nullptr ? 0 : out.size());
    return give(select_groups(all, keep, nan, work, out, query, their_scores), count);
  });
}

seriatim_status seriatim_expand_row(const seriatim_geometry* geometry, std::int64_t anchor, std::int64_t visible,
                                    const std::int32_t* groups, std::int64_t group_count, std::int32_t* row,
                                    std::int64_t row_entries, std::int64_t query, std::int64_t* count,
                                    seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"count", count}}); !s.ok()) return s;
    std::span<const std::int32_t> chosen;
    std::span<std::int32_t> out;
    if (Status s = take_array("groups", groups, group_count, chosen); !s.ok()) return s;
    if (Status s = take_array("row", row, row_entries, out); !s.ok()) return s;
    return give(expand_row(geometry->geometry, {anchor, visible}, chosen, out, query), count);
  });
}

seriatim_status seriatim_plan_row_scratch_entries(const seriatim_geometry* geometry, std::int64_t visible,
                                                  std::int64_t* entries, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"entries", entries}}); !s.ok()) return s;
    if (Status s = check_run(0, visible); !s.ok()) return s;
    *entries = plan_row_scratch_entries(geometry->geometry, visible);
    return {};
  });
}

seriatim_status seriatim_plan_row(const seriatim_geometry* geometry, std::int64_t anchor, std::int64_t visible,
                                  const float* scores, std::int64_t score_count, std::int32_t nan_policy,
                                  std::int32_t* scratch, std::int64_t scratch_entries, std::int32_t* row,
                                  std::int64_t row_entries, std::int64_t query, std::int64_t* count,
                                  seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}, {"count", count}}); !s.ok()) return s;
    NanPolicy nan{};
    std::span<const float> all;
    std::span<std::int32_t> work;
    std::span<std::int32_t> out;
    if (Status s = take_nan_policy(nan_policy, nan); !s.ok()) return s;
    if (Status s = take_array("scores", scores, score_count, all); !s.ok()) return s;
    if (Status s = take_array("scratch", scratch, scratch_entries, work); !s.ok()) return s;
    if (Status s = take_array("row", row, row_entries, out); !s.ok()) return s;
    return give(plan_row(geometry->geometry, {anchor, visible}, all, nan, work, out, query), count);
  });
}

seriatim_status seriatim_check_ascending(std::int64_t anchor, std::int64_t visible, const std::int32_t* row,
                                         std::int64_t count, std::int64_t query, seriatim_error* error) {
  return call(error, [&]() -> Status {
    std::span<const std::int32_t> entries;
    if (Status s = check_run(anchor, visible); !s.ok()) return s;
    if (Status s = take_array("row", row, count, entries); !s.ok()) return s;
    return check_ascending({anchor, visible}, entries, query);
  });
}

seriatim_status seriatim_check_row(const seriatim_geometry* geometry, std::int64_t anchor, std::int64_t visible,
                                   const std::int32_t* row, std::int64_t count, std::int32_t exact_width,
                                   std::int64_t query, seriatim_error* error) {
  return call(error, [&]() -> Status {
    if (Status s = need({{"geometry", geometry}}); !s.ok()) return s;
    std::span<const std::int32_t> entries;
    bool exact = false;
    if (Status s = take_array("row", row, count, entries); !s.ok()) return s;
    if (Status s = take_flag("exact_width", exact_width, exact); !s.ok()) return s;
    return check_row(geometry->geometry, {anchor, visible}, entries, exact, query);
  });
}
