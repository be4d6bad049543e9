// Binds select: the whole rule over bare scores.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "docs.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "rows.hpp"
#include "seriatim/row.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

// One number for all rows, or one each.
std::vector<std::int64_t> per_row(nb::handle given, const char* argument, std::int64_t rows, std::int64_t otherwise) {
  std::vector<std::int64_t> all = given.is_none() ? std::vector<std::int64_t>{otherwise} : integers(given, argument);
  if (all.size() == 1) all.resize(static_cast<std::size_t>(rows), all[0]);
  if (static_cast<std::int64_t>(all.size()) != rows) {
    refuse(argument,
           "holds " + std::to_string(all.size()) + " numbers for " + std::to_string(rows) + " rows of scores");
  }
  return all;
}

// What the set and its row depend on.
struct RuleOptions {
  std::int64_t group_tokens, budget_tokens;
  std::string tail;
  std::int64_t forced_first, forced_newest;
  bool forced_outside;
};

// Everything else is as small as it may be. Scores are given, also that of a partial group.
Geometry rule_geometry(const RuleOptions& rule) {
  GeometryOptions options;
  options.group_tokens = rule.group_tokens;
  options.budget_tokens = rule.budget_tokens;
  const auto tail = tail_named(rule.tail);
  if (!tail) refuse("tail", "'" + rule.tail + "' is none of raw and group");
  options.tail = *tail;
  options.forced_first = rule.forced_first;
  options.forced_newest = rule.forced_newest;
  options.forced_outside = rule.forced_outside;
  options.pooling = Pooling::kUnitMax;
  options.index_rotary_dim = 0;
  return value(Geometry::admit(std::move(options)));
}

struct Rule {
  const Geometry& geometry;
  ConstTensor scores;
  std::int64_t row_bytes;  // from one row of scores to the next
  std::vector<std::int64_t> visible, anchor;
  NanPolicy nan;
};

Status select_rows(const Rule& rule, EngineHandle& engine, std::int32_t* positions, std::int64_t stride,
                   std::int32_t* counts) {
  const auto rows = static_cast<std::int64_t>(rule.visible.size());
  const std::int64_t longest = rows == 0 ? 0 : *std::max_element(rule.visible.begin(), rule.visible.end());
  const std::int64_t groups = rule.scores.shape[static_cast<std::size_t>(rule.scores.rank - 1)];
  for (std::int64_t q = 0; q < rows; ++q) {
    const VisibleRun run{rule.anchor[static_cast<std::size_t>(q)], rule.visible[static_cast<std::size_t>(q)]};
    if (Status s = rule.geometry.check_run(run, q); !s.ok()) return s;
    if (rule.geometry.groups(run.tokens) > groups) {
      return Status::error(Code::kInvalidArgument, "visible",
                           "visible: " + std::to_string(run.tokens) + " tokens have more groups than the " +
                               std::to_string(groups) + " scores of a row",
                           {.row = q});
    }
  }
  const std::shared_ptr<Executor> threads = rows > 1 ? engine.executor() : nullptr;
  const auto entries = static_cast<std::size_t>(plan_row_scratch_entries(rule.geometry, longest));
  // Not set: the rule reads only what it wrote, and of many groups it writes a small part.
  std::vector<std::unique_ptr<std::int32_t[]>> scratch(static_cast<std::size_t>(threads ? threads->concurrency() : 1));
  FirstStatus fault;
  const auto one = [&](std::int64_t q, int worker) {
    std::unique_ptr<std::int32_t[]>& mine = scratch[static_cast<std::size_t>(worker)];
    if (!mine) mine = std::make_unique_for_overwrite<std::int32_t[]>(entries);
    const VisibleRun run{rule.anchor[static_cast<std::size_t>(q)], rule.visible[static_cast<std::size_t>(q)]};
    const auto* scores = reinterpret_cast<const float*>(rule.scores.data + q * rule.row_bytes);
    const Result<std::int64_t> count =
        plan_row(rule.geometry, run, {scores, static_cast<std::size_t>(rule.geometry.groups(run.tokens))}, rule.nan,
                 {mine.get(), entries}, {positions + q * stride, static_cast<std::size_t>(stride)}, q);
    if (!count.ok()) return fault.report(q, count.status());
    counts[q] = static_cast<std::int32_t>(*count);
  };
  if (threads) {
    for_each_unit(*threads, rows, one);
  } else if (rows == 1) {
    one(0, 0);
  }
  return fault.status();
}

Input scores_in(nb::handle scores) {
  const Input in = input(scores, "scores");
  if (in.view.empty()) refuse("scores", "an array is needed");
  if (in.view.rank != 1 && in.view.rank != 2) refuse("scores", "[G] or [Q, G] is needed");
  if (in.view.dtype != DType::kF32)
    refuse("scores", "float32 is needed; widen or round them first, which may make or break ties");
  const auto last = static_cast<std::size_t>(in.view.rank - 1);
  if (in.view.shape[last] > 1 && in.view.stride_bytes[last] != 4)
    refuse("scores", "the last axis is strided; copy it first");
  return in;
}

nb::object select(nb::handle scores, nb::handle visible, std::int64_t group_tokens, std::int64_t budget_tokens,
                  nb::handle anchor, const std::string& nan, nb::handle out,
                  const std::shared_ptr<EngineHandle>& engine, const std::string& tail, std::int64_t forced_first,
                  std::int64_t forced_newest, bool forced_outside) {
  const Input in = scores_in(scores);
  const Geometry geometry =
      rule_geometry({group_tokens, budget_tokens, tail, forced_first, forced_newest, forced_outside});
  const std::int64_t rows = in.view.rank == 1 ? 1 : in.view.shape[0];
  const std::int64_t groups = in.view.shape[static_cast<std::size_t>(in.view.rank - 1)];
  if (groups > Geometry::kPositions / group_tokens) refuse("scores", "more groups than there are positions");
  const Rule rule{geometry,
                  in.view,
                  in.view.rank == 1 ? 0 : in.view.stride_bytes[0],
                  per_row(visible, "visible", rows, groups * group_tokens),
                  per_row(anchor, "anchor", rows, 0),
                  nan_policy(nan)};
  const RowsOut made = rows_out(out, scores, rows, geometry.row_capacity());
  EngineHandle& on = *engine_or_default(engine);  // the caller holds it
  const Status status = [&]() -> Status {
    const Unlocked unlocked;
    if (out.is_none()) return select_rows(rule, on, made.rows.positions, made.rows.stride, made.rows.counts);
    // Arrays that the caller will see must stay as they were if a later row is refused.
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows * made.rows.stride));
    std::vector<std::int32_t> counts(static_cast<std::size_t>(rows));
    if (Status s = select_rows(rule, on, positions.data(), made.rows.stride, counts.data()); !s.ok()) return s;
    std::copy(positions.begin(), positions.end(), made.rows.positions);
    std::copy(counts.begin(), counts.end(), made.rows.counts);
    return {};
  }();
  check(status);
  return made.object;
}

}  // namespace

void bind_rule(nb::module_& module) {
  module.def(
      "select", &select, "scores"_a, nb::kw_only(), "visible"_a = nb::none(), "group_tokens"_a = 4,
      "budget_tokens"_a = 2048, "anchor"_a = 0, "nan"_a = "refuse", "out"_a = nb::none(), "engine"_a = nb::none(),
      "tail"_a = "raw", "forced_first"_a = 0, "forced_newest"_a = 0, "forced_outside"_a = false,
      nb::sig("def select(scores: seriatim._types.ArrayT, *, visible: seriatim._types.Integers | None = None, "
              "group_tokens: int = 4, "
              "budget_tokens: int = 2048, anchor: seriatim._types.Integers = 0, nan: str = 'refuse', "
              "out: tuple[seriatim._types.ArrayT, seriatim._types.ArrayT] | None = None, engine: Engine | None = "
              "None, tail: str = 'raw', forced_first: int = 0, forced_newest: int = 0, forced_outside: bool = False) "
              "-> seriatim._types.Rows[seriatim._types.ArrayT]"),
      docs::kSelect);
}

}  // namespace seriatim::python
