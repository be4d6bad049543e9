#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/admit.hpp"
#include "base/half.hpp"
#include "score/score_ref.hpp"
#include "sequence/admit_queries.hpp"
#include "sequence/first_fault.hpp"
#include "sequence/workspace.hpp"

namespace seriatim {
namespace {

// One batch of queries over one layer.
class Planner final : public Task {
 public:
  Planner(const LayerView& layer, const IndexQueries& queries, NanPolicy nan, Workspace::Impl& work, Rows rows)
      : layer_(layer), geometry_(*layer.geometry), queries_(queries), nan_(nan), work_(work), rows_(rows) {}

  Status admit() const {
    const std::int64_t count = queries_.queries.shape[0];
    if (Status s = check_workspace(work_, geometry_); !s.ok()) return s;
    if (layer_.pooled.groups != geometry_.groups(layer_.run.tokens)) {
      return Status::error(Code::kInvalidArgument, "layer", "layer: it has no index; attend over the rows of one that has");
    }
    if (Status s = admit_view("index_queries", queries_.queries, geometry_.index_dtype(), {-1, geometry_.index_heads(), geometry_.index_dim()}); !s.ok()) return s;
    if (!queries_.head_weights.empty()) {
      if (Status s = admit_view("index_head_weights", queries_.head_weights, DType::kF32, {count, geometry_.index_heads()}); !s.ok()) return s;
    }
    if (Status s = admit_positions(layer_, queries_.positions, count, work_.max_visible_tokens); !s.ok()) return s;
    if (count > 0 && (rows_.positions == nullptr || rows_.counts == nullptr || rows_.stride < geometry_.row_capacity())) {
      return Status::error(Code::kInvalidArgument, "rows", fmt::format("rows: no memory, or a stride of {} where {} is needed", rows_.stride, geometry_.row_capacity()));
    }
    return {};
  }

  Status run() {
    const std::int64_t count = queries_.queries.shape[0];
    if (nan_ == NanPolicy::kRefuse) {
      // Nothing may be written if any query meets a NaN, so what could meet one is scored before all else.
      probing_ = true;
      work_.executor->run(count, *this);
      probing_ = false;
      if (const std::int64_t query = nan_scores_.place(); query != FirstFault::kNone) return refuse_nan(query);
    }
    work_.executor->run(count, *this);
    return {};
  }

  void run(std::int64_t query, int worker) override {
    WorkerScratch& scratch = work_.workers[static_cast<std::size_t>(worker)];
    if (probing_) {
      if (needs_scores(query) && !cannot_overflow(query) && has_nan(score(query, scratch))) nan_scores_.note(query);
      return;
    }
    write_row(query, scratch);
  }

  WorkDone done() const {
    WorkDone done;
    done.queries = queries_.queries.shape[0];
    for (std::int64_t q = 0; q < done.queries; ++q) {
      const std::int64_t visible = run_of(q).tokens;
      const std::int64_t width = rows_.counts[q];
      done.dense_rows += width == visible ? 1 : 0;
      done.groups_scored += needs_scores(q) ? geometry_.groups(visible) : 0;
      done.groups_selected += (width - geometry_.tail_tokens(visible)) / geometry_.group_tokens();
      done.row_tokens += width;
    }
    return done;
  }

 private:
  VisibleRun run_of(std::int64_t query) const {
    return visible_run(layer_, queries_.positions[static_cast<std::size_t>(query)]);
  }

  // Where everything complete fits the budget the set is known, unless NaN groups must be found to be left out.
  bool needs_scores(std::int64_t query) const {
    return nan_ == NanPolicy::kExclude || geometry_.groups(run_of(query).tokens) > geometry_.budget_groups();
  }

  ConstTensor weights_of(std::int64_t query) const {
    return queries_.head_weights.empty() ? ConstTensor{} : row_of(queries_.head_weights, query);
  }

  std::span<const float> score(std::int64_t query, WorkerScratch& scratch) const {
    const PooledKeys pooled = layer_.pooled_up_to(queries_.positions[static_cast<std::size_t>(query)]);
    const auto scores = std::span(scratch.scores).first(static_cast<std::size_t>(pooled.groups));
    score_ref(geometry_, row_of(queries_.queries, query), weights_of(query), pooled, scores);
    return scores;
  }

  // True if no partial sum of any score of this query can leave the range of f32: then no NaN can arise.
  bool cannot_overflow(std::int64_t query) const {
    double bound = 0.0;
    for (std::int64_t h = 0; h < geometry_.index_heads(); ++h) {
      double dot = 0.0;
      for (std::int64_t i = 0; i < geometry_.index_dim(); ++i) {
        dot += std::fabs(static_cast<double>(load_element(queries_.queries.at(query, h, i), queries_.queries.dtype)));
      }
      dot *= static_cast<double>(layer_.pooled.max_abs);
      if (!(dot < kSafe)) return false;  // also where a query is NaN or the bound unknown
      const double weight = queries_.head_weights.empty() ? 1.0 : std::fabs(static_cast<double>(load_element(queries_.head_weights.at(query, h), DType::kF32)));
      bound += weight * dot;
    }
    return bound < kSafe;
  }

  static bool has_nan(std::span<const float> scores) {
    return std::any_of(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
  }

  Status refuse_nan(std::int64_t query) {
    const auto scores = score(query, work_.workers.front());
    const auto nan = std::find_if(scores.begin(), scores.end(), [](float s) { return std::isnan(s); });
    const std::int64_t group = nan - scores.begin();
    return Status::error(Code::kNotANumber, "scores", fmt::format("scores: group {} of query {} is NaN", group, query), {query, group});
  }

  void write_row(std::int64_t query, WorkerScratch& scratch) {
    const VisibleRun run = run_of(query);
    const std::span<std::int32_t> row(rows_.positions + query * rows_.stride, static_cast<std::size_t>(rows_.stride));
    const auto groups = static_cast<std::size_t>(geometry_.groups(run.tokens));
    std::int64_t count = 0;
    if (needs_scores(query)) {
      count = *plan_row(geometry_, run, score(query, scratch), nan_, scratch.planned, row, query);
    } else {
      const auto every = std::span(scratch.planned).first(groups);
      for (std::size_t g = 0; g < groups; ++g) every[g] = static_cast<std::int32_t>(g);
      count = *expand_row(geometry_, run, every, row, query);
    }
    rows_.counts[query] = static_cast<std::int32_t>(count);
  }

  static constexpr double kSafe = 1e38;  // well inside f32, so that roundings of the chains cannot reach its end

  const LayerView& layer_;
  const Geometry& geometry_;
  const IndexQueries& queries_;
  const NanPolicy nan_;
  Workspace::Impl& work_;
  const Rows rows_;
  bool probing_ = false;
  FirstFault nan_scores_;
};

void add_done(WorkDone& total, const WorkDone& done) {
  total.queries += done.queries;
  total.dense_rows += done.dense_rows;
  total.groups_scored += done.groups_scored;
  total.groups_selected += done.groups_selected;
  total.row_tokens += done.row_tokens;
}

}  // namespace

Status plan(const LayerView& layer, const IndexQueries& queries, NanPolicy nan, Workspace& workspace, Rows rows) {
  Planner planner(layer, queries, nan, workspace.impl(), rows);
  if (Status s = planner.admit(); !s.ok()) return s;
  if (Status s = planner.run(); !s.ok()) return s;
  add_done(workspace.impl().done, planner.done());
  return {};
}

}  // namespace seriatim
