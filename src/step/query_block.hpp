// A block of queries that share one pass over the panels.
#pragma once

#include <cstdint>
#include <span>

#include "score/score_kernels.hpp"
#include "step/batch.hpp"
#include "step/plan_scratch.hpp"

namespace seriatim {

// Queries first .. first + count - 1 of an ask. All of them are scored against what the furthest one sees; each looks
// at its own part. With several selections each is scored by index heads of its own, as a query by itself.
class QueryBlock {
 public:
  // Takes   keys: that the furthest query is scored against, 0 where none needs scores; scratch: of the worker that
  //         packs, for the scores too
  QueryBlock(const PlanBatch& batch, std::size_t ask, const ScoreKernels& kernels, const RowKernels& rows,
             const PlanShape& shape, std::int64_t first, std::int64_t count, std::int64_t keys, PlanScratch& scratch);
  QueryBlock(const QueryBlock&) = delete;
  QueryBlock& operator=(const QueryBlock&) = delete;

  std::size_t ask() const { return ask_; }
  std::int64_t first() const { return first_; }
  std::int64_t count() const { return count_; }
  bool needs_scores() const { return pooled_.groups > 0; }
  std::int64_t groups() const { return pooled_.groups; }  // keys of groups, or of units with pooling `unit_max`
  std::int64_t stride() const { return stride_; }         // from one query's scores to the next's
  const ConstTensor& queries() const { return queries_; }
  const PooledKeys& pooled() const { return pooled_; }  // what the furthest query sees
  PlanScratch& scratch() const { return scratch_; }     // with the packed queries and the scores
  // Of the `index`th query, or null: [index_heads].
  const float* head_weights(std::int64_t index) const {
    return head_weights_.empty() ? nullptr : scratch_.head_weights.data() + index * geometry_.index_heads();
  }
  // Bytes that one pass reads.
  std::int64_t key_bytes() const { return panels_.count() * score_edge_bytes(geometry_); }

  // What can be scored apart: panels; with pooling `unit_max` groups.
  std::int64_t parts() const {
    return unit_max_ ? (pooled_.groups + group_tokens() - 1) / group_tokens() : panels_.count();
  }
  // Multiplications and additions of one part.
  std::int64_t part_flops() const {
    return 2 * (unit_max_ ? group_tokens() : Panels::kLanes) * count_ * geometry_.index_heads() * geometry_.index_dim();
  }

  // Comes before all that follows.
  void pack() const;
  // True if no partial sum of any score can leave the range of f32, the keys being `largest` in magnitude at most: then
  // no NaN can arise. False also where a query is NaN.
  bool cannot_overflow(float largest) const;
  // Any parts at once, each with the edge and the units of another worker's scratch.
  void score(std::int64_t first_part, std::int64_t parts, PlanScratch& own) const;
  void score_all() const { score(0, parts(), scratch_); }

  // Of a selection of the block's `index`th query, which sees `groups`. Those of forced groups may be anything.
  std::span<const float> scores(std::int64_t index, std::int64_t selection, std::int64_t groups) const;
  // Among the scores of its groups that are not forced.
  bool has_nan(std::int64_t index) const;
  // The first selection of the query that has a NaN, and where. Comes after score_all().
  NanPlace find_nan(std::int64_t index) const;

 private:
  std::int64_t group_tokens() const { return geometry_.group_tokens(); }
  std::int64_t visible_tokens(std::int64_t index) const { return batch_.run_of(ask_, first_ + index).tokens; }
  // The groups of the query that are not forced.
  std::span<const float> free_scores(std::int64_t index, std::int64_t selection, std::int64_t& first_group) const;
  ScoreBlock block_of(std::int64_t first_panel, std::int64_t panels, std::byte* edge) const;
  void score_units(std::int64_t first_group, std::int64_t groups, PlanScratch& own) const;
  void take_best(std::int64_t first_unit, std::int64_t units, const float* unit_scores, std::int64_t stride) const;

  const PlanBatch& batch_;
  const Geometry& geometry_;
  const ScoreKernels& kernels_;
  const RowKernels& rows_;
  const bool unit_max_;
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
