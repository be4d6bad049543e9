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
                       const PlanShape& shape, std::int64_t first, std::int64_t count, std::int64_t keys,
                       PlanScratch& scratch)
    : batch_(batch),
      geometry_(batch.geometry()),
      kernels_(kernels),
      rows_(rows),
      unit_max_(geometry_.pooling() == Pooling::kUnitMax),
      ask_(ask),
      first_(first),
      count_(count),
      queries_(some_rows(batch.asks[ask].queries.queries, first, count)),
      head_weights_(some_rows(batch.asks[ask].queries.head_weights, first, count)),
      pooled_(first_groups(batch.asks[ask].layer->pooled, keys)),
      panels_(pooled_),
      stride_(shape.score_stride),
      scratch_(scratch) {}

void QueryBlock::pack() const {
  kernels_.pack(queries_, scratch_.queries.data());
  if (!head_weights_.empty()) pack_head_weights(head_weights_, scratch_.head_weights.data());
}

bool QueryBlock::cannot_overflow(float largest) const {
  const std::int64_t heads = geometry_.heads_per_selection();
  const std::int64_t queries = count_ * geometry_.selections();
  const auto* packed = reinterpret_cast<const std::byte*>(scratch_.queries.data());
  const float query = rows_.largest(packed, queries * heads * geometry_.index_dim(), DType::kF32);
  const double dot =
      static_cast<double>(geometry_.index_dim()) * static_cast<double>(query) * static_cast<double>(largest);
  if (!(dot < kSafe)) return false;
  for (std::int64_t q = 0; q < queries; ++q) {
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

ScoreBlock QueryBlock::block_of(std::int64_t first_panel, std::int64_t panels, std::byte* edge) const {
  ScoreBlock block;
  block.geometry = &geometry_;
  block.count = count_ * geometry_.selections();
  block.queries = scratch_.queries.data();
  block.head_weights = head_weights_.empty() ? nullptr : scratch_.head_weights.data();
  block.pooled = &pooled_;
  block.first_panel = first_panel;
  block.panels = panels;
  block.edge = edge;
  return block;
}

void QueryBlock::score(std::int64_t first_part, std::int64_t parts, PlanScratch& own) const {
  if (unit_max_) return score_units(first_part, parts, own);
  ScoreBlock block = block_of(first_part, parts, own.edge.data());
  block.scores = scratch_.scores.data() + first_part * Panels::kLanes;
  block.stride = stride_;
  kernels_.score(block);
}

// The scores of units live until their groups have been told.
void QueryBlock::score_units(std::int64_t first_group, std::int64_t groups, PlanScratch& own) const {
  const std::int64_t queries = count_ * geometry_.selections();
  const std::int64_t most = own.units.size() / queries / Panels::kLanes;
  const std::int64_t end = std::min((first_group + groups) * group_tokens(), pooled_.groups);
  for (std::int64_t unit = first_group * group_tokens(); unit < end;) {
    const std::int64_t panel = (panels_.lead() + unit) / Panels::kLanes;
    const std::int64_t lane = (panels_.lead() + unit) % Panels::kLanes;
    const std::int64_t panels = std::min(most, (lane + end - unit + Panels::kLanes - 1) / Panels::kLanes);
    const std::int64_t units = std::min(end - unit, panels * Panels::kLanes - lane);
    ScoreBlock block = block_of(panel, panels, own.edge.data());
    block.scores = own.units.data();
    block.stride = most * Panels::kLanes;
    kernels_.score(block);
    take_best(unit, units, own.units.data() + lane, block.stride);
    unit += units;
  }
}

// Of each query those units that it sees. A group that an earlier call began goes on.
void QueryBlock::take_best(std::int64_t first_unit, std::int64_t units, const float* unit_scores,
                           std::int64_t stride) const {
  const std::int64_t r = group_tokens();
  for (std::int64_t index = 0; index < count_; ++index) {
    const std::int64_t end = std::min(first_unit + units, visible_tokens(index));
    for (std::int64_t s = 0; s < geometry_.selections(); ++s) {
      const std::int64_t query = index * geometry_.selections() + s;
      float* const scores = scratch_.scores.data() + query * stride_;
      for (std::int64_t unit = first_unit; unit < end;) {
        const std::int64_t in_group = std::min(r - unit % r, end - unit);
        const float best = kernels_.best(unit_scores + query * stride + unit - first_unit, in_group);
        float& group = scores[unit / r];
        const float both[] = {group, best};
        group = unit % r == 0 ? best : kernels_.best(both, 2);
        unit += in_group;
      }
    }
  }
}

std::span<const float> QueryBlock::scores(std::int64_t index, std::int64_t selection, std::int64_t groups) const {
  const std::int64_t query = index * geometry_.selections() + selection;
  return {scratch_.scores.data() + query * stride_ + (unit_max_ ? 0 : panels_.lead()),
          static_cast<std::size_t>(groups)};
}

std::span<const float> QueryBlock::free_scores(std::int64_t index, std::int64_t selection,
                                               std::int64_t& first_group) const {
  const std::int64_t groups = geometry_.groups(visible_tokens(index));
  first_group = std::min(geometry_.forced_first(), groups);
  const std::int64_t newest = std::min(geometry_.forced_newest(), groups - first_group);
  return scores(index, selection, groups)
      .subspan(static_cast<std::size_t>(first_group), static_cast<std::size_t>(groups - first_group - newest));
}

bool QueryBlock::has_nan(std::int64_t index) const {
  std::int64_t first_group = 0;
  for (std::int64_t s = 0; s < geometry_.selections(); ++s) {
    const std::span<const float> scores = free_scores(index, s, first_group);
    const auto* bytes = reinterpret_cast<const std::byte*>(scores.data());
    if (std::isnan(rows_.largest(bytes, static_cast<std::int64_t>(scores.size()), DType::kF32))) return true;
  }
  return false;
}

NanPlace QueryBlock::find_nan(std::int64_t index) const {
  NanPlace place;
  for (std::int64_t s = 0; s < geometry_.selections() && place.group < 0; ++s) {
    std::int64_t first_group = 0;
    const std::span<const float> scores = free_scores(index, s, first_group);
    const auto found = std::find_if(scores.begin(), scores.end(), [](float score) { return std::isnan(score); });
    if (found != scores.end()) place = {first_group + (found - scores.begin()), -1, s};
  }
  if (!unit_max_ || place.group < 0) return place;
  const std::int64_t query = index * geometry_.selections() + place.selection;
  const std::int64_t end = std::min((place.group + 1) * group_tokens(), visible_tokens(index));
  for (std::int64_t unit = place.group * group_tokens(); unit < end && place.unit < 0; ++unit) {
    ScoreBlock block = block_of((panels_.lead() + unit) / Panels::kLanes, 1, scratch_.edge.data());
    block.scores = scratch_.units.data();
    block.stride = Panels::kLanes;
    kernels_.score(block);
    const std::int64_t lane = (panels_.lead() + unit) % Panels::kLanes;
    if (std::isnan(scratch_.units.data()[query * Panels::kLanes + lane])) place.unit = unit;
  }
  return place;
}

}  // namespace seriatim
