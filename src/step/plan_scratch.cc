#include "step/plan_scratch.hpp"

#include <algorithm>

#include "score/score_kernels.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kBlockQueries = 32;
constexpr std::int64_t kBlockScoreBytes = std::int64_t{16} << 20;
constexpr std::int64_t kBlockQueryBytes = std::int64_t{128}
                                          << 10;  // they are read once per few panels: a part of the second cache

}  // namespace

PlanShape plan_shape(const Geometry& geometry, std::int64_t max_visible_tokens) {
  constexpr std::int64_t kLanes = Panels::kLanes;
  PlanShape shape;
  // Whole panels: group 0 may stand in any lane of the first one.
  shape.score_stride = (geometry.groups(max_visible_tokens) + 2 * (kLanes - 1)) / kLanes * kLanes;
  const std::int64_t query_floats = geometry.index_heads() * geometry.index_dim();
  shape.block_queries = std::clamp<std::int64_t>(
      std::min(kBlockScoreBytes / (shape.score_stride * 4), kBlockQueryBytes / 4 / query_floats), 1, kBlockQueries);
  shape.score_floats = shape.block_queries * shape.score_stride;
  shape.query_floats = shape.block_queries * query_floats;
  shape.weight_floats = shape.block_queries * geometry.index_heads();
  shape.edge_bytes = score_edge_bytes(geometry);
  shape.planned_ints = plan_row_scratch_entries(geometry, max_visible_tokens);
  return shape;
}

PlanScratch::PlanScratch(const PlanShape& shape)
    : scores(shape.score_floats),
      queries(shape.query_floats),
      head_weights(shape.weight_floats),
      edge(shape.edge_bytes),
      planned(shape.planned_ints) {}

bool PlanScratch::holds(const PlanShape& shape) const {
  return scores.size() >= shape.score_floats && queries.size() >= shape.query_floats &&
         head_weights.size() >= shape.weight_floats && edge.size() >= shape.edge_bytes &&
         planned.size() >= shape.planned_ints;
}

}  // namespace seriatim
