#include "seriatim/row.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "row/emit_row.hpp"

namespace seriatim {
namespace {

std::string of_query(std::int64_t query) { return query < 0 ? std::string() : formatted(" (query {})", query); }

Status invalid(std::string_view argument, std::string_view what, Place place) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}{}", argument, what, of_query(place.row)),
                       place);
}

Status unordered(std::string_view what, Place place) {
  return Status::error(Code::kNotChronological, "row", formatted("row: {}{}", what, of_query(place.row)), place);
}

Status admit_groups(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> groups,
                    std::int64_t query) {
  if (static_cast<std::int64_t>(groups.size()) > geometry.row_groups()) {
    return invalid("groups", formatted("{} exceed the budget of {}", groups.size(), geometry.row_groups()),
                   {query, -1});
  }
  const std::int64_t complete = geometry.groups(run.tokens);
  std::int64_t previous = -1;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    if (groups[i] < 0 || groups[i] >= complete) {
      return invalid("groups", formatted("entry {} is {}, not in 0..{}", i, groups[i], complete - 1), {query, index});
    }
    if (groups[i] <= previous) {
      return invalid("groups", formatted("entry {} is {}, not above {}", i, groups[i], previous), {query, index});
    }
    previous = groups[i];
  }
  return {};
}

}  // namespace

Result<std::int64_t> expand_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> groups,
                                std::span<std::int32_t> row, std::int64_t query) {
  if (Status s = geometry.check_run(run, query); !s.ok()) return s;
  if (static_cast<std::int64_t>(row.size()) < geometry.row_capacity()) {
    return invalid("row", formatted("{} entries where {} are needed", row.size(), geometry.row_capacity()),
                   {query, -1});
  }
  if (Status s = admit_groups(geometry, run, groups, query); !s.ok()) return s;
  return emit_row(geometry, run, groups, row);
}

std::int64_t plan_row_scratch_entries(const Geometry& geometry, std::int64_t visible_tokens) {
  const std::int64_t groups = geometry.groups(visible_tokens);
  return select_scratch_entries(groups) + std::min(groups, geometry.row_groups());
}

Result<std::int64_t> plan_row(const Geometry& geometry, VisibleRun run, std::span<const float> scores, NanPolicy nan,
                              std::span<std::int32_t> scratch, std::span<std::int32_t> row, std::int64_t query) {
  if (Status s = geometry.check_run(run, query); !s.ok()) return s;
  const std::int64_t groups = geometry.groups(run.tokens);
  if (static_cast<std::int64_t>(scores.size()) != groups) {
    return invalid("scores", formatted("{} entries for {} groups", scores.size(), groups), {query, -1});
  }
  if (static_cast<std::int64_t>(scratch.size()) < plan_row_scratch_entries(geometry, run.tokens)) {
    return invalid(
        "scratch",
        formatted("{} entries where {} are needed", scratch.size(), plan_row_scratch_entries(geometry, run.tokens)),
        {query, -1});
  }
  const auto kept = static_cast<std::size_t>(std::min(groups, geometry.row_groups()));
  const auto chosen = scratch.first(kept);
  auto count = select_forced(scores, geometry.budget_groups(), forced_groups(geometry), nan, scratch.subspan(kept),
                             chosen, query);
  if (!count.ok()) return count.status();
  return expand_row(geometry, run, chosen.first(static_cast<std::size_t>(*count)), row, query);
}

Status check_ascending(VisibleRun run, std::span<const std::int32_t> row, std::int64_t query) {
  std::int64_t previous = -1;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    if (row[i] < run.anchor || row[i] - run.anchor >= run.tokens) {
      return invalid(
          "row",
          formatted("entry {} is {}, outside the visible {}..{}", i, row[i], run.anchor, run.anchor + run.tokens - 1),
          {query, index});
    }
    if (row[i] <= previous) {
      return unordered(formatted("entry {} is {}, not after {}: not chronological", i, row[i], previous),
                       {query, index});
    }
    previous = row[i];
  }
  return {};
}

Status check_row(const Geometry& geometry, VisibleRun run, std::span<const std::int32_t> row, bool exact_width,
                 std::int64_t query) {
  if (Status s = geometry.check_run(run, query); !s.ok()) return s;
  if (Status s = check_ascending(run, row, query); !s.ok()) return s;
  const std::int64_t r = geometry.group_tokens();
  const std::int64_t tail = geometry.tail_tokens(run.tokens);
  const std::int64_t grouped = static_cast<std::int64_t>(row.size()) - tail;
  // Ascending and in range: the tail is whole and last exactly when the entry that should open it does.
  if (grouped < 0 || (tail > 0 && row[static_cast<std::size_t>(grouped)] != run.anchor + run.tokens - tail)) {
    return unordered(formatted("the raw tail of {} tokens is not whole at the end", tail),
                     {query, std::max<std::int64_t>(grouped, 0)});
  }
  for (std::int64_t i = 0; i < grouped; ++i) {
    const std::int64_t offset = row[static_cast<std::size_t>(i)] - run.anchor;
    const std::int64_t first = row[static_cast<std::size_t>(i - i % r)] - run.anchor;
    if (first % r != 0 || offset != first + i % r) {
      return unordered(formatted("entry {} breaks a group of {} tokens", i, r), {query, i});
    }
  }
  const std::int64_t groups = geometry.groups(run.tokens);
  const auto group_of = [&](std::int64_t i) { return (row[static_cast<std::size_t>(i)] - run.anchor) / r; };
  const bool partial =
      grouped % r != 0 && group_of(grouped - 1) == groups - 1 && grouped % r == r - geometry.missing_tokens(run.tokens);
  if (grouped % r != 0 && !partial)
    return unordered(formatted("the last group holds {} of {} tokens", grouped % r, r), {query, grouped - 1});
  const std::int64_t held = grouped / r + (partial ? 1 : 0);
  const std::int64_t due = std::min(groups, geometry.row_groups());
  if (held > due || (exact_width && held != due))
    return unordered(formatted("width {} where {} is due", row.size(), geometry.row_width(run.tokens)), {query, -1});
  const std::int64_t first = std::min(geometry.forced_first(), groups);
  const std::int64_t newest = std::min(geometry.forced_newest(), groups - first);
  if (held < first + newest || (first > 0 && group_of((first - 1) * r) != first - 1) ||
      (newest > 0 && group_of((held - newest) * r) != groups - newest)) {
    return unordered(formatted("one of the {} first and {} newest groups is missing", first, newest), {query, -1});
  }
  return {};
}

}  // namespace seriatim
