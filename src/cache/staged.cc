#include "cache/staged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"
#include "cache/rows.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;
constexpr std::int64_t kPooledAtOnce = 64;
constexpr std::int64_t kTokensAtOnce = 1024;

}  // namespace

Result<PoolBuffers> PoolBuffers::make(const Geometry& geometry, const Layout& layout) {
  PoolBuffers buffers;
  if (layout.raw_bytes == 0) {  // keys arrive finished, and pass one at a time
    buffers.pooled.resize(static_cast<std::size_t>(geometry.index_dim() * dtype_bytes(geometry.index_dtype())));
    return buffers;
  }
  const std::int64_t r = geometry.group_tokens();
  buffers.groups = std::clamp<std::int64_t>(kTokensAtOnce / r, 1, kPooledAtOnce);
  const auto raw = checked_product({buffers.groups, r, geometry.index_dim(), dtype_bytes(geometry.index_dtype())});
  if (!raw) return Status::error(Code::kOverflow, "index_dim", "index_dim: the keys of one group do not fit 64-bit sizes");
  buffers.raw.resize(static_cast<std::size_t>(*raw));
  buffers.pooled.resize(static_cast<std::size_t>(*raw / r));
  if (!geometry.rope_axes().empty()) buffers.at.resize(static_cast<std::size_t>(buffers.groups * r));
  return buffers;
}

StagedSequence::StagedSequence(SequenceId id, Ref<const SequenceState> base, bool repool)
    : id_(id),
      base_(std::move(base)),
      store_(*base_->store),
      repools_(repool),
      tokens_(store_, PageRun::Kind::kTokens, base_->tokens, base_->run.tokens),
      groups_(store_, PageRun::Kind::kGroups, base_->groups, repool ? 0 : groups_of(base_->run.tokens)),
      layer_tokens_(store_.layout.layers.size(), base_->run.tokens) {}

std::int64_t StagedSequence::groups_of(std::int64_t tokens) const {
  return store_.layout.pooled_page_bytes == 0 ? 0 : store_.geometry.groups(tokens);
}

Status StagedSequence::repool(PoolBuffers& buffers) {
  const std::int64_t groups = groups_of(base_->run.tokens);
  if (Status s = groups_.claim(groups); !s.ok()) return s;
  for (std::size_t layer = 0; layer < store_.layout.layers.size(); ++layer) {
    if (store_.layout.layers[layer].raw == kAbsent) continue;
    if (Status s = pool_closed_groups(static_cast<std::int64_t>(layer), 0, groups, buffers); !s.ok()) return s;
  }
  return base_->check();
}

std::int64_t StagedSequence::frontier() const { return *std::max_element(layer_tokens_.begin(), layer_tokens_.end()); }

std::int64_t StagedSequence::most_staged() const { return frontier() - base_->run.tokens; }

std::int64_t StagedSequence::least_staged() const {
  return *std::min_element(layer_tokens_.begin(), layer_tokens_.end()) - base_->run.tokens;
}

Status StagedSequence::append(std::int64_t layer, const TokenBatch& batch, PoolBuffers& buffers) {
  const bool indexed = store_.layout.layers[static_cast<std::size_t>(layer)].pooled != kAbsent;
  const auto tokens = admit_batch(store_.geometry, indexed, batch);
  if (!tokens.ok()) return tokens.status();
  std::int64_t& count = layer_tokens_[static_cast<std::size_t>(layer)];
  const std::int64_t next = base_->run.anchor + count;
  if (batch.first_position != next) {
    return Status::error(Code::kNotContiguous, "first_position",
                         fmt::format("first_position: {} where sequence {} goes on at {} in layer {}", batch.first_position,
                                     id_, next, layer),
                         {id_, next});
  }
  const auto end = checked_add(count, *tokens);
  if (!end || *end > Geometry::kPositions - base_->run.anchor) {
    return Status::error(Code::kInvalidArgument, "keys",
                         fmt::format("keys: {} tokens from position {} pass the last position {}", *tokens, next,
                                     Geometry::kPositions - 1),
                         {id_, -1});
  }
  const std::int64_t before = most_staged();
  Status status;
  try {
    status = append_claimed(layer, batch, *tokens, buffers);
  } catch (...) {
    shrink(before);
    throw;
  }
  if (status.ok()) status = base_->check();  // a last page may have been copied from a file
  if (!status.ok()) {
    shrink(before);
    return status;
  }
  count = *end;
  return {};
}

Status StagedSequence::append_claimed(std::int64_t layer, const TokenBatch& batch, std::int64_t tokens, PoolBuffers& buffers) {
  const Geometry& geometry = store_.geometry;
  const LayerLayout& at = store_.layout.layers[static_cast<std::size_t>(layer)];
  const std::int64_t begin = layer_tokens_[static_cast<std::size_t>(layer)];
  if (Status s = tokens_.claim(begin + tokens); !s.ok()) return s;
  if (Status s = groups_.claim(groups_of(begin + tokens)); !s.ok()) return s;
  if (Status s = write_coordinates(batch, begin, tokens); !s.ok()) return s;
  if (Status s = write_block("keys", batch.keys, at.keys, begin); !s.ok()) return s;
  if (at.values != kAbsent) {
    if (Status s = write_block("values", batch.values, at.values, begin); !s.ok()) return s;
  }
  if (at.pooled == kAbsent) return {};
  if (at.raw == kAbsent) return write_finished_keys(layer, batch.index_keys, begin, buffers);
  ConstTensor one_head = batch.index_keys;  // [T, index_dim] as [T, 1, index_dim]
  one_head.shape = {tokens, 1, geometry.index_dim(), 1};
  one_head.stride_bytes = {batch.index_keys.stride_bytes[0], 0, batch.index_keys.stride_bytes[1], 0};
  if (Status s = write_block("index_keys", one_head, at.raw, begin); !s.ok()) return s;
  return pool_closed_groups(layer, geometry.groups(begin), geometry.groups(begin + tokens), buffers);
}

// Coordinates belong to the token, not to a layer: the first layer that reaches it writes them, the others must agree.
Status StagedSequence::write_coordinates(const TokenBatch& batch, std::int64_t begin, std::int64_t tokens) {
  if (store_.layout.coordinates == kAbsent) return {};
  const std::int64_t known = frontier();
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto [page, in_page] = tokens_.slot(begin + t);
    std::byte* to = page + store_.layout.coordinates + in_page * static_cast<std::int64_t>(sizeof(Coordinates));
    if (begin + t >= known) {
      std::memcpy(to, &batch.coordinates[t], sizeof(Coordinates));
    } else if (std::memcmp(to, &batch.coordinates[t], sizeof(Coordinates)) != 0) {
      return Status::error(Code::kInvalidArgument, "coordinates",
                           fmt::format("coordinates: token {} has others in a layer staged before", t), {t, -1});
    }
  }
  return {};
}

// Writes [T, heads, dim] to a token page's block [heads][page_tokens][dim].
Status StagedSequence::write_block(std::string_view name, const ConstTensor& source, std::int64_t block, std::int64_t begin) {
  const std::int64_t heads = source.shape[1];
  const std::int64_t dim = source.shape[2];
  const std::int64_t row_bytes = dim * dtype_bytes(source.dtype);
  for (std::int64_t t = 0; t < source.shape[0]; ++t) {
    const auto [page, in_page] = tokens_.slot(begin + t);
    for (std::int64_t head = 0; head < heads; ++head) {
      std::byte* to = page + block + (head * store_.layout.page_tokens + in_page) * row_bytes;
      const std::int64_t fault = copy_row(source.at(t, head), source.stride_bytes[2], dim, source.dtype, to);
      if (fault >= 0) return not_finite(name, t, head * dim + fault);
    }
  }
  return {};
}

Status StagedSequence::write_finished_keys(std::int64_t layer, const ConstTensor& source, std::int64_t begin, PoolBuffers& buffers) {
  for (std::int64_t t = 0; t < source.shape[0]; ++t) {
    const std::int64_t fault = copy_row(source.at(t), source.stride_bytes[1], source.shape[1], source.dtype, buffers.pooled.data());
    if (fault >= 0) return not_finite("index_keys", t, fault);
    scatter_pooled(layer, begin + t, buffers.pooled.data());
  }
  return {};
}

// Groups may straddle pages, so their raw keys are gathered first.
Status StagedSequence::pool_closed_groups(std::int64_t layer, std::int64_t begin, std::int64_t end, PoolBuffers& buffers) {
  const Geometry& geometry = store_.geometry;
  const std::int64_t r = geometry.group_tokens();
  const std::int64_t row_bytes = geometry.index_dim() * dtype_bytes(geometry.index_dtype());
  const std::int64_t raw_block = store_.layout.layers[static_cast<std::size_t>(layer)].raw;
  const std::vector<float>& weight = store_.norm_weights[static_cast<std::size_t>(layer)];
  for (std::int64_t group = begin; group < end;) {
    const std::int64_t groups = std::min(buffers.groups, end - group);
    for (std::int64_t t = 0; t < groups * r; ++t) {
      const auto [page, in_page] = tokens_.slot(group * r + t);
      std::memcpy(buffers.raw.data() + t * row_bytes, page + raw_block + in_page * row_bytes, static_cast<std::size_t>(row_bytes));
      if (buffers.at.empty()) continue;
      std::memcpy(&buffers.at[static_cast<std::size_t>(t)],
                  page + store_.layout.coordinates + in_page * static_cast<std::int64_t>(sizeof(Coordinates)), sizeof(Coordinates));
    }
    const Status status = pool_keys(
        geometry, dense_view(weight.data(), DType::kF32, {geometry.index_dim()}),
        dense_view(static_cast<const std::byte*>(buffers.raw.data()), geometry.index_dtype(), {groups * r, geometry.index_dim()}),
        base_->run.anchor + group * r, buffers.at.empty() ? nullptr : buffers.at.data(),
        dense_view(buffers.pooled.data(), geometry.index_dtype(), {groups, geometry.index_dim()}));
    if (!status.ok()) return status;
    for (std::int64_t g = 0; g < groups; ++g) scatter_pooled(layer, group + g, buffers.pooled.data() + g * row_bytes);
    group += groups;
  }
  return {};
}

// One pooled key into its lane of its panel.
void StagedSequence::scatter_pooled(std::int64_t layer, std::int64_t group, const std::byte* row) {
  const std::int64_t dim = store_.geometry.index_dim();
  const std::int64_t element_bytes = dtype_bytes(store_.geometry.index_dtype());
  const auto [page, in_page] = groups_.slot(group);
  std::byte* lane = page + store_.layout.layers[static_cast<std::size_t>(layer)].pooled +
                    (in_page / kPanel * (kPanel * dim) + in_page % kPanel) * element_bytes;
  for (std::int64_t i = 0; i < dim; ++i) {
    std::memcpy(lane + i * kPanel * element_bytes, row + i * element_bytes, static_cast<std::size_t>(element_bytes));
  }
}

void StagedSequence::shrink(std::int64_t tokens) noexcept {
  const std::int64_t end = base_->run.tokens + tokens;
  for (std::int64_t& count : layer_tokens_) count = std::min(count, end);
  tokens_.shrink(end);
  groups_.shrink(groups_of(end));
}

Ref<const SequenceState> StagedSequence::published(std::int64_t tokens) const {
  if (tokens == 0 && !repools_) return base_;
  const std::int64_t end = base_->run.tokens + tokens;
  return SequenceState::make(base_->store, {base_->run.anchor, end}, tokens_.published(end), groups_.published(groups_of(end)),
                             base_->mapping);
}

void StagedSequence::keep(std::int64_t tokens) noexcept {
  shrink(tokens);
  tokens_.keep();
  groups_.keep();
}

LayerView StagedSequence::view(std::int64_t layer) const {
  const VisibleRun run{base_->run.anchor, layer_tokens_[static_cast<std::size_t>(layer)]};
  return view_layer(store_, layer, run, tokens_.table(), tokens_.first(), groups_.table(), groups_.first(),
                    base_->mapping.get());
}

}  // namespace seriatim
