#include <cstring>
#include <new>
#include <vector>

#include "commands.hpp"
#include "outputs.hpp"
#include "print.hpp"
#include "progress.hpp"
#include "seriatim/file.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/row.hpp"

namespace seriatim::cli {
namespace {

Status bad(std::string_view argument, std::string_view what) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what));
}

Result<Geometry> rule_geometry(const SelectOptions& options) {
  GeometryOptions geometry;  // heads and dims play no part in the rule
  geometry.group_tokens = options.group_tokens;
  geometry.budget_tokens = options.budget_tokens;
  return Geometry::admit(geometry);
}

// Scores as [Q, G], whatever the rank of the file.
struct Scores {
  ConstTensor view;
  std::int64_t queries = 0;
  std::int64_t groups = 0;
};

Result<Scores> admit_scores(const NpyArray& array) {
  const ConstTensor& view = array.view();
  if (view.dtype != DType::kF32)
    return bad("scores", formatted("dtype {} where f32 is needed", dtype_name(view.dtype)));
  if (view.rank == 1) return Scores{dense_view(view.data, DType::kF32, {1, view.shape[0]}), 1, view.shape[0]};
  if (view.rank == 2) return Scores{view, view.shape[0], view.shape[1]};
  return bad("scores", formatted("rank {} where [G] or [Q, G] is needed", view.rank));
}

void print_summary(const Geometry& geometry, VisibleRun run, std::int64_t query, std::span<const std::int32_t> row) {
  const std::int64_t tail = geometry.tail_tokens(run.tokens);
  const std::int64_t chosen = (static_cast<std::int64_t>(row.size()) - tail) / geometry.group_tokens();
  print("row {}: {} tokens", query, row.size());
  if (!row.empty()) print(" in {}..{}", row.front(), row.back());
  print("; {} of {} groups, tail {}{}\n", chosen, geometry.groups(run.tokens), tail,
        static_cast<std::int64_t>(row.size()) == run.tokens ? "; dense" : "");
}

struct Planned {
  std::vector<std::int32_t> rows;    // [Q, row_capacity]
  std::vector<std::int64_t> counts;  // [Q]
};

Result<Planned> plan_all(const Geometry& geometry, const Scores& scores, VisibleRun run, NanPolicy nan) {
  const auto groups = static_cast<std::size_t>(geometry.groups(run.tokens));
  const auto capacity = static_cast<std::size_t>(geometry.row_capacity());
  std::vector<float> one(groups);
  std::vector<std::int32_t> scratch(static_cast<std::size_t>(plan_row_scratch_entries(geometry, run.tokens)));
  Planned planned;
  planned.rows.resize(static_cast<std::size_t>(scores.queries) * capacity);
  Progress progress;
  for (std::int64_t q = 0; q < scores.queries; ++q) {
    if (groups > 0) std::memcpy(one.data(), scores.view.at(q), groups * sizeof(float));
    const auto row = std::span(planned.rows).subspan(static_cast<std::size_t>(q) * capacity, capacity);
    const auto count = plan_row(geometry, run, one, nan, scratch, row, q);
    if (!count.ok()) return count.status();
    planned.counts.push_back(*count);
    progress("select", q + 1, scores.queries);
  }
  return planned;
}

Result<Planned> select_file(const SelectOptions& options, const Geometry& geometry, VisibleRun& run) {
  const auto array = NpyArray::open(options.scores);
  if (!array.ok()) return array.status();
  const auto scores = admit_scores(*array);
  if (!scores.ok()) return scores.status();
  run = {options.anchor, options.visible.value_or(scores->groups * geometry.group_tokens())};
  if (Status s = geometry.check_run(run); !s.ok()) return s;
  if (geometry.groups(run.tokens) > scores->groups) {
    return bad("scores", formatted("{} groups where {} visible tokens have {}", scores->groups, run.tokens,
                                   geometry.groups(run.tokens)));
  }
  return plan_all(geometry, *scores, run, options.nan);
}

}  // namespace

int select(const SelectOptions& options) try {
  if (Status s = admit_outputs({options.scores}, {{"out", options.out}}); !s.ok()) return refuse(s);
  const auto geometry = rule_geometry(options);
  if (!geometry.ok()) return refuse(geometry.status());
  VisibleRun run;
  const auto planned = select_file(options, *geometry, run);
  if (!planned.ok()) return refuse(planned.status());
  const auto queries = static_cast<std::int64_t>(planned->counts.size());
  const std::int64_t capacity = geometry->row_capacity();
  if (!options.out.empty()) {
    const Status s = write_npy(options.out, dense_view(planned->rows.data(), DType::kI32, {queries, capacity}));
    return s.ok() ? kAgrees : refuse(s);
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    const auto count = static_cast<std::size_t>(planned->counts[static_cast<std::size_t>(q)]);
    print_summary(*geometry, run, q, std::span(planned->rows).subspan(static_cast<std::size_t>(q * capacity), count));
  }
  return kAgrees;
} catch (const std::bad_alloc&) {
  return refuse(Status::error(Code::kOutOfMemory, "scores", "scores: the system refused memory"));
}

}  // namespace seriatim::cli
