#include "score/score_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.hpp"
#include "score/score_ref.hpp"

namespace seriatim {
namespace {

void pack(const ConstTensor& queries, float* packed) {
  for (std::int64_t q = 0; q < queries.shape[0]; ++q) {
    for (std::int64_t h = 0; h < queries.shape[1]; ++h) {
      for (std::int64_t i = 0; i < queries.shape[2]; ++i) *packed++ = load_element(queries.at(q, h, i), queries.dtype);
    }
  }
}

// The groups of `pooled` from `first` on.
PooledKeys slice(const PooledKeys& pooled, std::int64_t first, std::int64_t groups) {
  PooledKeys part = pooled;
  const std::int64_t slot = pooled.first_slot + first;
  part.pages += slot / pooled.page_groups;
  part.first_slot = slot % pooled.page_groups;
  part.groups = groups;
  return part;
}

float best(const float* scores, std::int64_t count) {
  float most = scores[0];
  for (std::int64_t i = 1; i < count && !std::isnan(most); ++i) {
    const bool zeros = most == 0.0f && scores[i] == 0.0f;
    if (std::isnan(scores[i]) || scores[i] > most || (zeros && std::signbit(most))) most = scores[i];
  }
  return most;
}

void score(const ScoreBlock& block) {
  const Geometry& geometry = *block.geometry;
  const Panels panels(*block.pooled);
  const std::int64_t first = std::max<std::int64_t>(block.first_panel * Panels::kLanes - panels.lead(), 0);
  const std::int64_t end =
      std::min((block.first_panel + block.panels) * Panels::kLanes - panels.lead(), block.pooled->groups);
  if (first >= end) return;
  const PooledKeys part = slice(*block.pooled, first, end - first);
  for (std::int64_t q = 0; q < block.count; ++q) {
    const std::int64_t heads = geometry.heads_per_selection();
    const ConstTensor query =
        dense_view(block.queries + q * heads * geometry.index_dim(), DType::kF32, {heads, geometry.index_dim()});
    const ConstTensor weights = block.head_weights == nullptr
                                    ? ConstTensor{}
                                    : dense_view(block.head_weights + q * heads, DType::kF32, {heads});
    float* scores = block.scores + q * block.stride + panels.lead() + first - block.first_panel * Panels::kLanes;
    score_ref(geometry, query, weights, part, {scores, static_cast<std::size_t>(end - first)});
  }
}

}  // namespace

const std::byte* Panels::whole(std::int64_t panel, std::byte* edge) const {
  const std::byte* from = at(panel);
  const std::int64_t bytes = dtype_bytes(pooled_.dtype);
  const std::int64_t used = lanes(panel);
  if (used == kLanes) return from;
  std::memset(edge, 0, static_cast<std::size_t>(elements() * bytes));
  for (std::int64_t i = 0; i < pooled_.dim; ++i) {
    std::memcpy(edge + i * kLanes * bytes, from + i * kLanes * bytes, static_cast<std::size_t>(used * bytes));
  }
  return edge;
}

void pack_head_weights(const ConstTensor& head_weights, float* packed) {
  for (std::int64_t q = 0; q < head_weights.shape[0]; ++q) {
    for (std::int64_t h = 0; h < head_weights.shape[1]; ++h)
      *packed++ = load_element(head_weights.at(q, h), DType::kF32);
  }
}

std::int64_t score_edge_bytes(const Geometry& geometry) {
  return row_bytes(geometry.index_dtype(), Panels::kLanes * geometry.index_dim());
}

float max_abs_of_panels(const RowKernels& kernels, const PooledKeys& pooled, std::int64_t first_panel,
                        std::int64_t panels, std::byte* edge) {
  const Panels held(pooled);
  float largest = 0.0f;
  for (std::int64_t p = first_panel; p < first_panel + panels; ++p)
    largest = larger_magnitude(largest, kernels.largest(held.whole(p, edge), held.elements(), held.dtype()));
  return largest;
}

const ScoreKernels& score_reference() {
  static constexpr ScoreKernels kTable{"reference", pack, score, best};
  return kTable;
}

}  // namespace seriatim
