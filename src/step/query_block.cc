#include "step/query_block.hpp"

#include <algorithm>
#include <cmath>

namespace seriatim {
namespace {

constexpr double kSafe = 1e37;  // so far inside f32 that all the roundings of the longest chains do not reach its end

ConstTensor some_rows(const ConstTensor& batch, std::int64_t first, std::int64_t count) {
  ConstTensor part = batch;
  if (batch.empty()) return part;
  part.data = batch.at(first);
  part.shape[0] = count;
  return part;
}

PooledKeys first_groups(const PooledKeys& pooled, std::int64_t groups) {
  PooledKeys part = pooled;
  part.groups = groups;
  return part;
}

}  // namespace

QueryBlock::QueryBlock(const PlanBatch& batch, std::size_t ask, const ScoreKernels& kernels, const RowKernels& rows,
                       const PlanShape& shape, std::int64_t first, std::int64_t count, std::int64_t groups,
                       PlanScratch& scratch)
    : geometry_(batch.geometry()),
      kernels_(kernels),
      rows_(rows),
      ask_(ask),
      first_(first),
      count_(count),
      queries_(some_rows(batch.asks[ask].queries.queries, first, count)),
      head_weights_(some_rows(batch.asks[ask].queries.head_weights, first, count)),
      pooled_(first_groups(batch.asks[ask].layer->pooled, groups)),
      panels_(pooled_),
      stride_(shape.score_stride),
      scratch_(scratch) {}

void QueryBlock::pack() const {
  kernels_.pack(queries_, scratch_.queries.data());
  if (!head_weights_.empty()) pack_head_weights(head_weights_, scratch_.head_weights.data());
}

bool QueryBlock::cannot_overflow(float largest) const {
  const std::int64_t heads = geometry_.index_heads();
  const auto* queries = reinterpret_cast<const std::byte*>(scratch_.queries.data());
  const float query = rows_.largest(queries, count_ * heads * geometry_.index_dim(), DType::kF32);
  const double dot =
      static_cast<double>(geometry_.index_dim()) * static_cast<double>(query) * static_cast<double>(largest);
  if (!(dot < kSafe)) return false;
  for (std::int64_t q = 0; q < count_; ++q) {
    double weights = static_cast<double>(heads);
    if (!head_weights_.empty()) {
      weights = 0.0;
      for (std::int64_t h = 0; h < heads; ++h)
        weights += std::fabs(static_cast<double>(scratch_.head_weights.data()[q * heads + h]));
    }
    if (!(weights * dot < kSafe)) return false;
  }
  return true;
}

void QueryBlock::score(std::int64_t first_panel, std::int64_t panels, std::byte* edge) const {
  ScoreBlock block;
  block.geometry = &geometry_;
  block.count = count_;
  block.queries = scratch_.queries.data();
  block.head_weights = head_weights_.empty() ? nullptr : scratch_.head_weights.data();
  block.pooled = &pooled_;
  block.first_panel = first_panel;
  block.panels = panels;
  block.edge = edge;
  block.scores = scratch_.scores.data() + first_panel * Panels::kLanes;
  block.stride = stride_;
  kernels_.score(block);
}

std::span<const float> QueryBlock::scores(std::int64_t index, std::int64_t groups) const {
  return {scratch_.scores.data() + index * stride_ + panels_.lead(), static_cast<std::size_t>(groups)};
}

bool QueryBlock::has_nan(std::span<const float> scores) const {
  const auto* bytes = reinterpret_cast<const std::byte*>(scores.data());
  return std::isnan(rows_.largest(bytes, static_cast<std::int64_t>(scores.size()), DType::kF32));
}

}  // namespace seriatim
