// A block of queries that share one pass over the panels.
#pragma once

#include <cstdint>
#include <span>

#include "score/score_kernels.hpp"
#include "step/batch.hpp"
#include "step/plan_scratch.hpp"

namespace seriatim {

// Queries first .. first + count - 1 of an ask. All of them are scored against what the furthest one sees; each looks
// at its own part.
class QueryBlock {
 public:
  // Takes   groups: of the furthest query, 0 where none needs scores; scratch: of the worker that packs, for the scores
  // too
  QueryBlock(const PlanBatch& batch, std::size_t ask, const ScoreKernels& kernels, const RowKernels& rows,
             const PlanShape& shape, std::int64_t first, std::int64_t count, std::int64_t groups, PlanScratch& scratch);
  QueryBlock(const QueryBlock&) = delete;
  QueryBlock& operator=(const QueryBlock&) = delete;

  std::size_t ask() const { return ask_; }
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }
  std::int64_t groups() const { return pooled_.groups; }
  std::int64_t panels() const { return panels_.count(); }
  std::int64_t stride() const { return stride_; }  // from one query's scores to the next's
  const ConstTensor& queries() const { return queries_; }
  const PooledKeys& pooled() const { return pooled_; }  // what the furthest query sees
  PlanScratch& scratch() const { return scratch_; }     // with the packed queries and the scores
  // Of the `index`th query, or null: [index_heads].
  const float* head_weights(std::int64_t index) const {
    return head_weights_.empty() ? nullptr : scratch_.head_weights.data() + index * geometry_.index_heads();
  }
  // Bytes that one pass reads.
  std::int64_t key_bytes() const { return panels() * score_edge_bytes(geometry_); }
  // Multiplications and additions of one panel.
  std::int64_t panel_flops() const {
    return 2 * Panels::kLanes * count_ * geometry_.index_heads() * geometry_.index_dim();
  }

  // Comes before all that follows.
  void pack() const;
  // True if no partial sum of any score can leave the range of f32, the keys being `largest` in magnitude at most: then
  // no NaN can arise. False also where a query is NaN.
  bool cannot_overflow(float largest) const;
  // Any panels at once, each with an edge of its own.
  void score(std::int64_t first_panel, std::int64_t panels, std::byte* edge) const;
  void score_all() const { score(0, panels(), scratch_.edge.data()); }

  // Of the block's `index`th query, which sees `groups`.
  std::span<const float> scores(std::int64_t index, std::int64_t groups) const;
  bool has_nan(std::span<const float> scores) const;

 private:
  const Geometry& geometry_;
  const ScoreKernels& kernels_;
  const RowKernels& rows_;
  const std::size_t ask_;
  const std::int64_t first_;
  const std::int64_t count_;
  const ConstTensor queries_;
  const ConstTensor head_weights_;
  const PooledKeys pooled_;
  const Panels panels_;
  const std::int64_t stride_;
  PlanScratch& scratch_;
};

}  // namespace seriatim
