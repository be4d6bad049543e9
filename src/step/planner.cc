#include "step/planner.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "row/emit_row.hpp"
#include "select/select_kernels.hpp"
#include "step/first_fault.hpp"
#include "step/for_units.hpp"
#include "step/query_block.hpp"
#include "step/screening.hpp"

namespace seriatim {
namespace {

// Every ask is cut into blocks of queries that share their passes over its panels. A block that is a large part of the
// call's work (decoding one sequence is one block) is scored by all workers together, its panels divided among them;
// the other blocks, of all asks, are themselves divided among the workers.
class Planner {
 public:
  Planner(const PlanBatch& batch, HostScratch& scratch)
      : batch_(batch),
        geometry_(batch.geometry()),
        work_(scratch),
        kernels_(score_kernels(scratch.kernels)),
        row_kernels_(row_kernels(scratch.kernels)),
        screens_(scratch.screens(batch.geometry())) {
    batch_.table.cut([&](const AskPart& part) { return shape_of(part).block_queries; });
    for (std::int64_t b = 0; b < blocks(); ++b) all_work_ += work_of(b);
  }

  Status run() {
    if (blocks() == 1) return plan_only_block();
    if (batch_.nan == NanPolicy::kRefuse) {
      // Nothing may be written if any query meets a NaN, so what could meet one is scored before all else.
      probe();
      if (const std::int64_t query = nan_scores_.place(); query != FirstFault::kNone) return refuse_nan(query);
    }
    std::int64_t large = 0;
    for (std::int64_t b = 0; b < blocks(); ++b) {
      if (!is_large(b)) continue;
      ++large;
      const QueryBlock block = block_at(b, scratch(0));
      const std::uint64_t left = screen(block, together());
      if (left != 0) score_together(block);
      write_rows(block, left, together());
    }
    if (large == blocks()) return {};
    for_blocks([&](std::int64_t b, int worker) {
      if (!is_large(b)) plan_alone(block_at(b, scratch(worker)), worker);
    });
    return {};
  }

 private:
  std::int64_t blocks() const { return batch_.table.blocks(); }
  PlanScratch& scratch(int worker) const { return work_.workers[static_cast<std::size_t>(worker)].plan; }
  PlanShape shape_of(const AskPart& part) const { return plan_shape(geometry_, part.visible_tokens); }

  // 0 where none of the queries needs scores.
  std::int64_t keys_of(std::size_t ask, std::int64_t first, std::int64_t count) const {
    std::int64_t keys = 0;
    for (std::int64_t q = first; q < first + count; ++q) {
      const std::int64_t visible = batch_.run_of(ask, q).tokens;
      if (batch_.needs_scores(visible)) keys = std::max(keys, geometry_.scored_keys(visible));
    }
    return keys;
  }

  struct Part {
    std::size_t ask;
    std::int64_t first;  // query of the ask
    std::int64_t count;
  };
  Part part_of(std::int64_t block) const {
    const AskTable::Place place = batch_.table.of_block(block);
    const AskPart& part = batch_.table[place.ask];
    const std::int64_t most = shape_of(part).block_queries;
    const std::int64_t first = place.number * most;
    return {place.ask, first, std::min(most, part.queries - first)};
  }

  QueryBlock block_of(const Part& part, PlanScratch& scratch) const {
    return {batch_,
            part.ask,
            kernels_,
            row_kernels_,
            shape_of(batch_.table[part.ask]),
            part.first,
            part.count,
            keys_of(part.ask, part.first, part.count),
            scratch};
  }
  QueryBlock block_at(std::int64_t block, PlanScratch& scratch) const { return block_of(part_of(block), scratch); }

  // Multiplications and additions, and what writing the rows costs in their stead.
  std::int64_t work_of(std::int64_t block) const {
    const Part part = part_of(block);
    const std::int64_t scored = keys_of(part.ask, part.first, part.count);
    return part.count * (2 * scored * geometry_.index_heads() * geometry_.index_dim() +
                         kFlopsPerEntry * geometry_.selections() * geometry_.row_capacity());
  }
  bool is_large(std::int64_t block) const { return kBlocksPerWorker * workers() * work_of(block) > all_work_; }
  std::int64_t workers() const { return work_.concurrency(); }

  // Calls each(block, worker) for all blocks, on the calling thread where waking others would take longer. In one
  // sequence later blocks see more: they come from both ends, so that every stretch of units costs about the same.
  template <typename Each>
  void for_blocks(const Each& each) const {
    const auto fair = [&](std::int64_t unit, int worker) {
      each(unit % 2 == 0 ? unit / 2 : blocks() - 1 - unit / 2, worker);
    };
    if (all_work_ >= kStretchFlops) return for_units(work_.executor, blocks(), fair);
    for (std::int64_t unit = 0; unit < blocks(); ++unit) fair(unit, 0);
  }

  Status plan_only_block() {
    const QueryBlock block = block_at(0, scratch(0));
    const std::uint64_t left = screen(block, together());
    if (left == 0) return {};
    score_together(block);
    if (batch_.nan == NanPolicy::kRefuse && block.needs_scores()) {
      for_units(work_.executor, block.count(), [&](std::int64_t index, int) { note_nan(block, index); });
      if (const std::int64_t query = nan_scores_.place(); query != FirstFault::kNone) return refuse_nan(query);
    }
    write_rows(block, left, together());
    return {};
  }

  // Who works on a block: one worker, or all together.
  using Workers = std::optional<int>;
  static Workers together() { return std::nullopt; }

  // Calls each(index, worker) for the queries whose bit `left` has.
  template <typename Each>
  void for_queries(const QueryBlock& block, std::uint64_t left, Workers alone, const Each& each) const {
    const auto one = [&](std::int64_t index, int worker) {
      if ((left >> index & 1) != 0) each(index, worker);
    };
    if (!alone) return for_units(work_.executor, block.count(), one);
    for (std::int64_t index = 0; index < block.count(); ++index) one(index, *alone);
  }

  // Writes what rows screening can tell. Gives the queries that are left, a bit each; all where nothing is screened.
  // Where some are written none of the others' scores can be NaN.
  std::uint64_t screen(const QueryBlock& block, Workers alone) const {
    const std::uint64_t all = ~std::uint64_t{0} >> (64 - block.count());
    if (!screens_ || !worth_screening(work_.screening, block, geometry_, only_long_runs(block))) return all;
    block.pack();
    ScreenedBlock screened(block, geometry_, work_.kernels, work_.screening);
    if (!approximate(block, screened, alone)) return fall_back(block, all);
    std::atomic<std::uint64_t> left = all;
    for_queries(block, all, alone, [&](std::int64_t index, int worker) {
      if (pick_row(block, screened, index, worker)) left &= ~(std::uint64_t{1} << index);
    });
    if (left != 0) return fall_back(block, left);
    block.scratch().blocks_left_last = 0;
    return 0;
  }

  // Whether every query that needs scores sees more groups than the budget.
  bool only_long_runs(const QueryBlock& block) const {
    for (std::int64_t q = block.first(); q < block.first() + block.count(); ++q) {
      const std::int64_t visible = batch_.run_of(block.ask(), q).tokens;
      if (batch_.needs_scores(visible) && geometry_.groups(visible) <= geometry_.budget_groups()) return false;
    }
    return true;
  }

  bool approximate(const QueryBlock& block, ScreenedBlock& screened, Workers alone) const {
    if (!screened.pack()) return false;
    if (alone) {
      screened.score(0, block.parts(), scratch(*alone));
    } else {
      for_parts(block.parts(), block.part_flops() / 2, [&](std::int64_t first, std::int64_t panels, int worker) {
        screened.score(first, panels, scratch(worker));
      });
    }
    block.scratch().done.key_bytes += block.key_bytes();
    return screened.close();
  }

  std::uint64_t fall_back(const QueryBlock& block, std::uint64_t left) const {
    constexpr std::int64_t kMostBlocksLeft = 64;
    PlanScratch& scratch = block.scratch();
    for (std::int64_t index = 0; index < block.count(); ++index) {
      const std::int64_t visible = batch_.run_of(block.ask(), block.first() + index).tokens;
      if ((left >> index & 1) != 0 && batch_.needs_scores(visible)) ++scratch.done.fallbacks;
    }
    scratch.blocks_left_last = std::clamp<std::int64_t>(2 * scratch.blocks_left_last, 8, kMostBlocksLeft);
    scratch.blocks_to_leave = scratch.blocks_left_last;
    return left;
  }

  // False: the query is to be scored in full.
  bool pick_row(const QueryBlock& block, const ScreenedBlock& screened, std::int64_t index, int worker) const {
    const VisibleRun run = batch_.run_of(block.ask(), block.first() + index);
    if (!batch_.needs_scores(run.tokens)) {
      write_row(block, index, worker);
      return true;
    }
    PlanScratch& own = scratch(worker);
    const std::int64_t groups = geometry_.groups(run.tokens);
    const std::span<std::int32_t> chosen(own.planned.data(), static_cast<std::size_t>(geometry_.budget_groups()));
    std::span<float> chosen_scores;
    if (batch_.candidates != nullptr) {
      const Candidates& to = *batch_.candidates;
      chosen_scores = {to.scores + query_at(block, index) * to.stride, chosen.size()};
    }
    const Picked picked = screened.pick(index, groups, own, chosen, chosen_scores);
    own.done.key_bytes += picked.rescored * row_bytes(geometry_.index_dtype(), geometry_.index_dim());
    if (!picked.known) return false;
    own.done.groups += groups;
    own.done.rescored += picked.rescored;
    if (batch_.candidates != nullptr) {
      put_candidates(chosen, query_at(block, index));
    } else {
      put_row(block, index, emit_row(geometry_, run, chosen, row_at(block, index)));
    }
    return true;
  }

  // Calls each(first, count, worker) for stretches of `parts` that are worth a worker's while.
  template <typename Each>
  void for_parts(std::int64_t parts, std::int64_t part_flops, const Each& each) const {
    const std::int64_t fair = workers() == 1 ? parts : parts / (kStretchesPerWorker * workers());
    const std::int64_t stretch = (std::max(fair, kStretchFlops / part_flops) / kStretchParts + 1) * kStretchParts;
    for_units(work_.executor, (parts + stretch - 1) / stretch, [&](std::int64_t unit, int worker) {
      each(unit * stretch, std::min(stretch, parts - unit * stretch), worker);
    });
  }

  void score_together(const QueryBlock& block) const {
    if (!block.needs_scores()) return;
    block.pack();
    block.scratch().done.key_bytes += block.key_bytes();
    for_parts(block.parts(), block.part_flops(),
              [&](std::int64_t first, std::int64_t parts, int worker) { block.score(first, parts, scratch(worker)); });
  }

  void write_rows(const QueryBlock& block, std::uint64_t left, Workers alone) const {
    for_queries(block, left, alone, [&](std::int64_t index, int worker) { write_row(block, index, worker); });
  }

  void plan_alone(const QueryBlock& block, int worker) const {
    const std::uint64_t left = screen(block, worker);
    if (left == 0) return;
    if (block.needs_scores()) {
      block.pack();
      block.score_all();
      block.scratch().done.key_bytes += block.key_bytes();
    }
    write_rows(block, left, worker);
  }

  void probe() {
    for (std::size_t a = 0; a < batch_.asks.size(); ++a) batch_.table[a].largest_key = largest_key(a);
    for_blocks([&](std::int64_t b, int worker) {
      const QueryBlock block = block_at(b, scratch(worker));
      if (!block.needs_scores()) return;
      block.pack();
      if (block.cannot_overflow(batch_.table[block.ask()].largest_key)) return;
      block.score_all();
      for (std::int64_t index = 0; index < block.count(); ++index) note_nan(block, index);
    });
  }

  // One look at every key that any query sees is cheaper than scoring twice.
  float largest_key(std::size_t ask) const {
    const PooledKeys& pooled = batch_.asks[ask].layer->pooled;
    if (std::isfinite(pooled.max_abs)) return pooled.max_abs;
    PooledKeys seen = pooled;
    seen.groups = keys_of(ask, 0, batch_.table[ask].queries);
    if (seen.groups == 0) return 0.0f;
    for (WorkerScratch& worker : work_.workers) worker.plan.largest = 0.0f;
    for_parts(Panels(seen).count(), Panels::kLanes * geometry_.index_dim(),
              [&](std::int64_t first, std::int64_t panels, int worker) {
                PlanScratch& own = scratch(worker);
                own.largest = larger_magnitude(own.largest,
                                               max_abs_of_panels(row_kernels_, seen, first, panels, own.edge.data()));
              });
    float largest = 0.0f;
    for (const WorkerScratch& worker : work_.workers) largest = larger_magnitude(largest, worker.plan.largest);
    return largest;
  }

  void note_nan(const QueryBlock& block, std::int64_t index) {
    const std::int64_t query = block.first() + index;
    if (batch_.needs_scores(batch_.run_of(block.ask(), query).tokens) && block.has_nan(index))
      nan_scores_.note(batch_.table[block.ask()].first_query + query);
  }

  Status refuse_nan(std::int64_t query) const {
    const AskTable::Place place = batch_.table.of_query(query);
    const QueryBlock block = block_of({place.ask, place.number, 1}, scratch(0));
    block.pack();
    block.score_all();
    return nan_at(batch_, place.ask, place.number, block.find_nan(0));
  }

  void write_row(const QueryBlock& block, std::int64_t index, int worker) const {
    const VisibleRun run = batch_.run_of(block.ask(), block.first() + index);
    const std::int64_t groups = geometry_.groups(run.tokens);
    if (batch_.candidates != nullptr)
      return write_candidates(block.scores(index, 0, groups), query_at(block, index), scratch(worker));
    for (std::int64_t s = 0; s < geometry_.selections(); ++s) {
      const std::span<std::int32_t> row = row_at(block, index, s);
      put_row(block, index,
              batch_.needs_scores(run.tokens)
                  ? emit_row(geometry_, run, select(block.scores(index, s, groups), scratch(worker)), row)
                  : emit_dense_row(run, row),
              s);
    }
  }

  std::int64_t query_at(const QueryBlock& block, std::int64_t index) const {
    return batch_.table[block.ask()].first_query + block.first() + index;
  }
  std::int64_t number_at(const QueryBlock& block, std::int64_t index, std::int64_t selection) const {
    return query_at(block, index) * geometry_.selections() + selection;
  }
  std::span<std::int32_t> row_at(const QueryBlock& block, std::int64_t index, std::int64_t selection = 0) const {
    const Rows& rows = batch_.rows;
    return {rows.positions + number_at(block, index, selection) * rows.stride, static_cast<std::size_t>(rows.stride)};
  }
  void put_row(const QueryBlock& block, std::int64_t index, std::int64_t count, std::int64_t selection = 0) const {
    batch_.rows.counts[number_at(block, index, selection)] = static_cast<std::int32_t>(count);
  }

  void write_candidates(std::span<const float> scores, std::int64_t query, PlanScratch& scratch) const {
    const Candidates& to = *batch_.candidates;
    const std::span<const std::int32_t> chosen = select(scores, scratch);
    put_candidates(chosen, query);
    for (std::size_t i = 0; i < chosen.size(); ++i)
      to.scores[query * to.stride + static_cast<std::int64_t>(i)] = scores[static_cast<std::size_t>(chosen[i])];
  }

  void put_candidates(std::span<const std::int32_t> chosen, std::int64_t query) const {
    const Candidates& to = *batch_.candidates;
    std::copy(chosen.begin(), chosen.end(), to.groups + query * to.stride);
    to.counts[query] = static_cast<std::int32_t>(chosen.size());
  }

  std::span<const std::int32_t> select(std::span<const float> scores, PlanScratch& scratch) const {
    const std::span<std::int32_t> planned(scratch.planned.data(), static_cast<std::size_t>(scratch.planned.size()));
    const std::span<std::int32_t> chosen =
        planned.first(std::min(scores.size(), static_cast<std::size_t>(geometry_.row_groups())));
    // No error is left: NaN has been looked for, and there is room.
    const std::int64_t count = *select_with(work_.kernels, scores, geometry_.budget_groups(), forced_groups(geometry_),
                                            batch_.nan, planned.subspan(chosen.size()), chosen);
    return chosen.first(static_cast<std::size_t>(count));
  }

  static constexpr std::int64_t kBlocksPerWorker = 2;  // of a fair share: a larger block is divided itself
  static constexpr std::int64_t kStretchesPerWorker = 4;
  static constexpr std::int64_t kStretchParts = 4;  // stretches are multiples of what the kernels read at once
  static constexpr std::int64_t kStretchFlops = std::int64_t{1} << 20;  // some microseconds
  static constexpr std::int64_t kFlopsPerEntry = 16;

  const PlanBatch& batch_;
  const Geometry& geometry_;
  HostScratch& work_;
  const ScoreKernels& kernels_;
  const RowKernels& row_kernels_;
  const bool screens_;
  std::int64_t all_work_ = 0;
  FirstFault nan_scores_;
};

}  // namespace

Status plan_batch(const PlanBatch& batch, HostScratch& scratch) { return Planner(batch, scratch).run(); }

}  // namespace seriatim
