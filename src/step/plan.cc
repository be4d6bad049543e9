
#include <algorithm>
#include <cmath>

#include "base/admit.hpp"
#include "base/format.hpp"
#include "row/emit_row.hpp"
#include "select/select_kernels.hpp"
#include "step/admit_queries.hpp"
#include "step/first_fault.hpp"
#include "step/for_units.hpp"
#include "step/query_block.hpp"
#include "step/workspace.hpp"

namespace seriatim {
namespace {

// One batch of queries over one layer, in blocks of queries that share their passes over the panels. Few blocks (decode
// is one) are scored one after the other, the panels divided among the workers; many are divided themselves.
class Planner {
 public:
  Planner(const LayerView& layer, const IndexQueries& queries, NanPolicy nan, Workspace::Impl& work, Rows rows)
      : layer_(layer),
        geometry_(*layer.geometry),
        queries_(queries),
        count_(queries.queries.shape[0]),
        nan_(nan),
        work_(work),
        kernels_(score_kernels(work.kernels)),
        shape_(plan_shape(*layer.geometry, work.max_visible_tokens)),
        rows_(rows) {}

  Status admit() const {
    if (Status s = check_workspace(work_, geometry_); !s.ok()) return s;
    if (layer_.pooled.groups != geometry_.groups(layer_.run.tokens)) {
      return Status::error(Code::kInvalidArgument, "layer",
                           "layer: it has no index; attend over the rows of one that has");
    }
    if (Status s = admit_view("index_queries", queries_.queries, geometry_.index_dtype(),
                              {-1, geometry_.index_heads(), geometry_.index_dim()});
        !s.ok())
      return s;
    if (!queries_.head_weights.empty()) {
      if (Status s =
              admit_view("index_head_weights", queries_.head_weights, DType::kF32, {count_, geometry_.index_heads()});
          !s.ok())
        return s;
    }
    if (Status s = admit_positions(layer_, queries_.positions, count_, work_.max_visible_tokens); !s.ok()) return s;
    if (count_ > 0 &&
        (rows_.positions == nullptr || rows_.counts == nullptr || rows_.stride < geometry_.row_capacity())) {
      return Status::error(
          Code::kInvalidArgument, "rows",
          formatted("rows: no memory, or a stride of {} where {} is needed", rows_.stride, geometry_.row_capacity()));
    }
    return {};
  }

  Status run() {
    const std::int64_t blocks = (count_ + shape_.block_queries - 1) / shape_.block_queries;
    const int workers = work_.executor->concurrency();
    if (blocks == 1) return plan_only_block();
    if (nan_ == NanPolicy::kRefuse) {
      // Nothing may be written if any query meets a NaN, so what could meet one is scored before all else.
      probe(blocks);
      if (const std::int64_t query = nan_scores_.place(); query != FirstFault::kNone) return refuse_nan(query);
    }
    if (blocks < kBlocksPerWorker * workers) {
      for (std::int64_t b = 0; b < blocks; ++b) {
        const QueryBlock block = block_at(b, scratch(0));
        score_together(block);
        write_together(block);
      }
    } else {
      for_units(*work_.executor, blocks, [&](std::int64_t unit, int worker) {
        plan_alone(block_at(fair_order(unit, blocks), scratch(worker)), worker);
      });
    }
    return {};
  }

  WorkDone done() const {
    WorkDone done;
    done.queries = count_;
    for (std::int64_t q = 0; q < count_; ++q) {
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
  PlanScratch& scratch(int worker) const { return work_.workers[static_cast<std::size_t>(worker)].plan; }

  VisibleRun run_of(std::int64_t query) const {
    return visible_run(layer_, queries_.positions[static_cast<std::size_t>(query)]);
  }

  // Where everything complete fits the budget the set is known, unless NaN groups must be found to be left out.
  bool needs_scores(std::int64_t query) const {
    return nan_ == NanPolicy::kExclude || geometry_.groups(run_of(query).tokens) > geometry_.budget_groups();
  }

  QueryBlock block_of(std::int64_t first, std::int64_t count, PlanScratch& scratch) const {
    std::int64_t groups = 0;
    for (std::int64_t q = first; q < first + count; ++q) {
      if (needs_scores(q)) groups = std::max(groups, geometry_.groups(run_of(q).tokens));
    }
    return {layer_, queries_, kernels_, shape_, first, count, groups, scratch};
  }

  QueryBlock block_at(std::int64_t block, PlanScratch& scratch) const {
    const std::int64_t first = block * shape_.block_queries;
    return block_of(first, std::min(shape_.block_queries, count_ - first), scratch);
  }

  // Later queries see more: blocks from both ends, so that every stretch of units costs about the same.
  static std::int64_t fair_order(std::int64_t unit, std::int64_t blocks) {
    return unit % 2 == 0 ? unit / 2 : blocks - 1 - unit / 2;
  }

  Status plan_only_block() {
    const QueryBlock block = block_at(0, scratch(0));
    score_together(block);
    if (nan_ == NanPolicy::kRefuse && block.groups() > 0) {
      for_units(*work_.executor, block.count(), [&](std::int64_t index, int) { note_nan(block, index); });
      if (const std::int64_t query = nan_scores_.place(); query != FirstFault::kNone) return refuse_nan(query);
    }
    write_together(block);
    return {};
  }

  // Calls each(first_panel, panels, worker) for parts of `panels` that are worth a worker's while.
  template <typename Each>
  void for_panels(std::int64_t panels, std::int64_t panel_flops, const Each& each) const {
    const std::int64_t workers = work_.executor->concurrency();
    const std::int64_t fair = workers == 1 ? panels : panels / (kPartsPerWorker * workers);
    const std::int64_t part = (std::max(fair, kPartFlops / panel_flops) / kPartPanels + 1) * kPartPanels;
    for_units(*work_.executor, (panels + part - 1) / part,
              [&](std::int64_t unit, int worker) { each(unit * part, std::min(part, panels - unit * part), worker); });
  }

  void score_together(const QueryBlock& block) const {
    if (block.groups() == 0) return;
    block.pack();
    for_panels(block.panels(), block.panel_flops(), [&](std::int64_t first, std::int64_t panels, int worker) {
      block.score(first, panels, scratch(worker).edge.data());
    });
  }

  void write_together(const QueryBlock& block) {
    for_units(*work_.executor, block.count(), [&](std::int64_t index, int worker) { write_row(block, index, worker); });
  }

  void plan_alone(const QueryBlock& block, int worker) {
    if (block.groups() > 0) {
      block.pack();
      block.score_all();
    }
    for (std::int64_t index = 0; index < block.count(); ++index) write_row(block, index, worker);
  }

  void probe(std::int64_t blocks) {
    const float largest = largest_key();
    for_units(*work_.executor, blocks, [&](std::int64_t unit, int worker) {
      const QueryBlock block = block_at(fair_order(unit, blocks), scratch(worker));
      if (block.groups() == 0) return;
      block.pack();
      if (block.cannot_overflow(largest)) return;
      block.score_all();
      for (std::int64_t index = 0; index < block.count(); ++index) note_nan(block, index);
    });
  }

  // One look at every key that any query sees is cheaper than scoring twice.
  float largest_key() const {
    if (std::isfinite(layer_.pooled.max_abs)) return layer_.pooled.max_abs;
    PooledKeys seen = layer_.pooled;
    seen.groups = 0;
    for (std::int64_t q = 0; q < count_; ++q) {
      if (needs_scores(q)) seen.groups = std::max(seen.groups, geometry_.groups(run_of(q).tokens));
    }
    if (seen.groups == 0) return 0.0f;
    for (WorkerScratch& worker : work_.workers) worker.plan.largest = 0.0f;
    const auto keep = [](float& largest, float magnitude) {
      if (!(magnitude <= largest)) largest = magnitude;  // NaN stays
    };
    for_panels(Panels(seen).count(), Panels::kLanes * geometry_.index_dim(),
               [&](std::int64_t first, std::int64_t panels, int worker) {
                 keep(scratch(worker).largest,
                      max_abs_of_panels(kernels_, seen, first, panels, scratch(worker).edge.data()));
               });
    float largest = 0.0f;
    for (const WorkerScratch& worker : work_.workers) keep(largest, worker.plan.largest);
    return largest;
  }

  std::span<const float> scores_of(const QueryBlock& block, std::int64_t index) const {
    return block.scores(index, geometry_.groups(run_of(block.first() + index).tokens));
  }

  void note_nan(const QueryBlock& block, std::int64_t index) {
    const std::int64_t query = block.first() + index;
    if (needs_scores(query) && block.has_nan(scores_of(block, index))) nan_scores_.note(query);
  }

  Status refuse_nan(std::int64_t query) const {
    const QueryBlock block = block_of(query, 1, scratch(0));
    block.pack();
    block.score_all();
    const auto scores = scores_of(block, 0);
    const std::int64_t group =
        std::find_if(scores.begin(), scores.end(), [](float s) { return std::isnan(s); }) - scores.begin();
    return Status::error(Code::kNotANumber, "scores", formatted("scores: group {} of query {} is NaN", group, query),
                         {query, group});
  }

  void write_row(const QueryBlock& block, std::int64_t index, int worker) const {
    const std::int64_t query = block.first() + index;
    const VisibleRun run = run_of(query);
    const std::span<std::int32_t> row(rows_.positions + query * rows_.stride, static_cast<std::size_t>(rows_.stride));
    const std::int64_t count = needs_scores(query)
                                   ? emit_row(geometry_, run, select(scores_of(block, index), scratch(worker)), row)
                                   : emit_dense_row(run, row);
    rows_.counts[query] = static_cast<std::int32_t>(count);
  }

  std::span<const std::int32_t> select(std::span<const float> scores, PlanScratch& scratch) const {
    const std::span<std::int32_t> planned(scratch.planned.data(), static_cast<std::size_t>(scratch.planned.size()));
    const std::span<std::int32_t> chosen =
        planned.first(std::min(scores.size(), static_cast<std::size_t>(geometry_.budget_groups())));
    // No error is left: NaN has been looked for, and the sizes are the workspace's.
    const std::int64_t count =
        *select_with(work_.kernels, scores, geometry_.budget_groups(), nan_, planned.subspan(chosen.size()), chosen);
    return chosen.first(static_cast<std::size_t>(count));
  }

  static constexpr std::int64_t kBlocksPerWorker = 2;  // from which on blocks are divided among the workers
  static constexpr std::int64_t kPartsPerWorker = 4;
  static constexpr std::int64_t kPartPanels = 4;  // parts are multiples of what the kernels read at once
  static constexpr std::int64_t kPartFlops = std::int64_t{1} << 20;  // some microseconds

  const LayerView& layer_;
  const Geometry& geometry_;
  const IndexQueries& queries_;
  const std::int64_t count_;
  const NanPolicy nan_;
  Workspace::Impl& work_;
  const ScoreKernels& kernels_;
  const PlanShape shape_;
  const Rows rows_;
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
