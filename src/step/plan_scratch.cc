#include "step/plan_scratch.hpp"

#include <algorithm>

#include "score/score_kernels.hpp"
#include "seriatim/row.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kBlockQueries = 32;
constexpr std::int64_t kBlockScoreFloats = std::int64_t{4} << 20;
constexpr std::int64_t kBlockQueryBytes = std::int64_t{128}
                                          << 10;  // they are read once per few panels: a part of the second cache

}  // namespace

PlanShape plan_shape(const Geometry& geometry, std::int64_t max_visible_tokens, bool screens) {
  constexpr std::int64_t kLanes = Panels::kLanes;
  PlanShape shape;
  // Whole panels: group 0 may stand in any lane of the first one.
  shape.score_stride = (geometry.groups(max_visible_tokens) + 2 * (kLanes - 1)) / kLanes * kLanes;
  const std::int64_t query_scores = geometry.selections() * shape.score_stride;
  const std::int64_t query_floats = geometry.index_heads() * geometry.index_dim();
  const std::int64_t most_queries = std::clamp<std::int64_t>(kBlockQueryBytes / 4 / query_floats, 1, kBlockQueries);
  shape.block_queries = std::clamp<std::int64_t>(kBlockScoreFloats / query_scores, 1, most_queries);
  // No smaller for fewer visible tokens, which may put more queries in a block.
  shape.score_floats = std::max(query_scores, std::min(most_queries * query_scores, kBlockScoreFloats));
  if (geometry.pooling() == Pooling::kUnitMax) shape.unit_floats = most_queries * geometry.selections() * kUnitScores;
  shape.query_floats = most_queries * query_floats;
  shape.weight_floats = most_queries * geometry.index_heads();
  shape.edge_bytes = score_edge_bytes(geometry);
  shape.planned_ints = plan_row_scratch_entries(geometry, max_visible_tokens);
  if (screens) shape.screen = screen_shape(geometry, shape.score_stride, most_queries);
  return shape;
}

void PlanScratch::grow(const PlanShape& shape) {
  const auto grow_to = []<typename T>(AlignedBuffer<T>& buffer, std::int64_t entries) {
    if (buffer.size() < entries) buffer = AlignedBuffer<T>(entries);
  };
  grow_to(scores, shape.score_floats);
  grow_to(units, shape.unit_floats);
  grow_to(queries, shape.query_floats);
  grow_to(head_weights, shape.weight_floats);
  grow_to(edge, shape.edge_bytes);
  grow_to(planned, shape.planned_ints);
  screen.grow(shape.screen);
}

std::int64_t PlanScratch::bytes() const {
  return (scores.size() + units.size() + queries.size() + head_weights.size() + planned.size()) * 4 + edge.size() +
         screen.bytes();
}

bool PlanScratch::holds(const PlanShape& shape) const {
  return scores.size() >= shape.score_floats && units.size() >= shape.unit_floats &&
         queries.size() >= shape.query_floats && head_weights.size() >= shape.weight_floats &&
         edge.size() >= shape.edge_bytes && planned.size() >= shape.planned_ints && screen.holds(shape.screen);
}

}  // namespace seriatim
