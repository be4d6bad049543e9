#include "seriatim/score.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "base/admit.hpp"
#include "base/aligned_buffer.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "score/score_kernels.hpp"

namespace seriatim {
namespace {

Status admit_pooled(const Geometry& geometry, const PooledKeys& pooled) {
  const auto invalid = [](std::string_view what) {
    return Status::error(Code::kInvalidArgument, "pooled", formatted("pooled: {}", what));
  };
  if (pooled.groups < 0 || pooled.dim != geometry.index_dim() || pooled.dtype != geometry.index_dtype()) {
    return invalid(formatted("{} groups of {} x {} where {} x {} is needed", pooled.groups, pooled.dim,
                             dtype_name(pooled.dtype), geometry.index_dim(), dtype_name(geometry.index_dtype())));
  }
  if (pooled.groups > 0 && (pooled.pages == nullptr || pooled.page_groups < PooledKeys::kPanelGroups ||
                            pooled.page_groups % PooledKeys::kPanelGroups != 0 || pooled.first_slot < 0 ||
                            pooled.first_slot >= pooled.page_groups)) {
    return invalid("pages are not a whole number of panels");
  }
  return {};
}

ConstTensor batch_of_one(const ConstTensor& one) {
  ConstTensor batch = one;
  batch.rank = one.rank + 1;
  for (std::size_t axis = kMaxRank - 1; axis > 0; --axis) {
    batch.shape[axis] = one.shape[axis - 1];
    batch.stride_bytes[axis] = one.stride_bytes[axis - 1];
  }
  batch.shape[0] = 1;
  batch.stride_bytes[0] = 0;
  return batch;
}

// One query. Kernels write whole panels: those that reach past the caller's groups go by a buffer of one.
void score_into(const ScoreKernels& kernels, ScoreBlock block, std::span<float> scores) {
  const Panels panels(*block.pooled);
  const auto groups = static_cast<std::int64_t>(scores.size());
  std::array<float, Panels::kLanes> lanes{};
  for (std::int64_t panel = 0; panel < panels.count();) {
    const std::int64_t first = panel * Panels::kLanes - panels.lead();  // the group of lane 0
    const std::int64_t whole = first < 0 ? 0 : (groups - first) / Panels::kLanes;
    block.first_panel = panel;
    block.panels = std::max<std::int64_t>(whole, 1);
    block.scores = whole > 0 ? scores.data() + first : lanes.data();
    kernels.score(block);
    if (whole == 0) {
      const std::int64_t skip = std::max<std::int64_t>(-first, 0);
      std::copy(lanes.begin() + skip, lanes.begin() + panels.lanes(panel), scores.begin() + first + skip);
    }
    panel += block.panels;
  }
}

}  // namespace

Status score_groups(const Geometry& geometry, ConstTensor query, ConstTensor head_weights, const PooledKeys& pooled,
                    std::span<float> scores) {
  DefaultFloatEnvironment environment;
  const std::int64_t heads = geometry.heads_per_selection();
  if (Status s = admit_view("index_queries", query, geometry.index_dtype(), {heads, geometry.index_dim()}); !s.ok())
    return s;
  if (!left_out(head_weights)) {
    if (Status s = admit_view("index_head_weights", head_weights, DType::kF32, {heads}); !s.ok()) return s;
  }
  if (Status s = admit_pooled(geometry, pooled); !s.ok()) return s;
  if (static_cast<std::int64_t>(scores.size()) != pooled.groups) {
    return Status::error(Code::kInvalidArgument, "scores",
                         formatted("scores: {} entries for {} groups", scores.size(), pooled.groups));
  }
  try {
    const ScoreKernels& kernels = score_kernels(default_kernels());
    const AlignedBuffer<float> queries(heads * geometry.index_dim());
    const AlignedBuffer<float> weights(heads);
    const AlignedBuffer<std::byte> edge(score_edge_bytes(geometry));
    kernels.pack(batch_of_one(query), queries.data());
    if (!head_weights.empty()) pack_head_weights(batch_of_one(head_weights), weights.data());
    ScoreBlock block;
    block.geometry = &geometry;
    block.count = 1;
    block.queries = queries.data();
    block.head_weights = head_weights.empty() ? nullptr : weights.data();
    block.pooled = &pooled;
    block.edge = edge.data();
    score_into(kernels, block, scores);
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "index_queries", "index_queries: the system refused a copy of one query");
  }
  return {};
}

Status best_of_units(const Geometry& geometry, std::span<const float> unit_scores, std::span<float> scores) {
  DefaultFloatEnvironment environment;
  const auto units = static_cast<std::int64_t>(unit_scores.size());
  const std::int64_t r = geometry.group_tokens();
  if (static_cast<std::int64_t>(scores.size()) != geometry.groups(units)) {
    return Status::error(Code::kInvalidArgument, "scores",
                         formatted("scores: {} entries for {} groups", scores.size(), geometry.groups(units)));
  }
  const ScoreKernels& kernels = score_kernels(default_kernels());
  for (std::size_t g = 0; g < scores.size(); ++g) {
    const std::int64_t first = static_cast<std::int64_t>(g) * r;
    scores[g] = kernels.best(unit_scores.data() + first, std::min(r, units - first));
  }
  return {};
}

}  // namespace seriatim
