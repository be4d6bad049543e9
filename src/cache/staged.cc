#include "cache/staged.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "cache/group_block.hpp"
#include "cache/rows.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

}  // namespace

Result<PoolBuffers> PoolBuffers::make(const Geometry& geometry, const Layout& layout, Kernels kernels) {
  auto pooler = Pooler::create(geometry, kernels);
  if (!pooler.ok()) return pooler.status();
  PoolBuffers buffers{std::move(*pooler), {}};
  const std::int64_t tokens = layout.raw_bytes == 0 ? 1 : geometry.key_tokens();
  const auto raw = checked_product({tokens, geometry.index_dim(), dtype_bytes(geometry.index_dtype())});
  if (!raw)
    return Status::error(Code::kOverflow, "index_dim", "index_dim: the keys of one group do not fit 64-bit sizes");
  buffers.raw.resize(static_cast<std::size_t>(*raw));
  return buffers;
}

StagedSequence::StagedSequence(SequenceId id, Ref<const SequenceState> base, bool repool)
    : id_(id),
      base_(std::move(base)),
      store_(*base_->store),
      repools_(repool),
      tokens_(store_, PageRun::Kind::kTokens, base_->tokens, base_->run.tokens),
      groups_(store_, PageRun::Kind::kGroups, base_->groups, repool ? 0 : groups_of(base_->run.tokens)),
      layer_tokens_(store_.layout.layers.size(), base_->run.tokens),
      largest_pooled_(base_->largest_pooled) {}

std::int64_t StagedSequence::groups_of(std::int64_t tokens) const {
  return store_.layout.pooled_page_bytes == 0 ? 0 : store_.geometry.index_keys(tokens);
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
  const LayerLayout& keeps = store_.layout.layers[static_cast<std::size_t>(layer)];
  const auto tokens = admit_batch(store_.geometry, keeps, batch);
  if (!tokens.ok()) return tokens.status();
  return append_admitted(layer, {batch, *tokens, nullptr}, buffers);
}

Status StagedSequence::append_admitted(std::int64_t layer, const Incoming& incoming, PoolBuffers& buffers) {
  const LayerLayout& keeps = store_.layout.layers[static_cast<std::size_t>(layer)];
  const TokenBatch& batch = incoming.batch;
  const std::int64_t tokens = incoming.tokens;
  std::int64_t& count = layer_tokens_[static_cast<std::size_t>(layer)];
  const std::int64_t next = base_->run.anchor + count;
  if (batch.first_position != next) {
    return Status::error(Code::kNotContiguous, "first_position",
                         formatted("first_position: {} where sequence {} goes on at {} in layer {}",
                                   batch.first_position, id_, next, layer),
                         {id_, next});
  }
  const auto end = checked_add(count, tokens);
  if (!end || *end > Geometry::kPositions - base_->run.anchor) {
    const std::string_view name = keeps.groups == kAbsent ? "index_keys" : "keys";
    return Status::error(Code::kInvalidArgument, name,
                         formatted("{}: {} tokens from position {} pass the last position {}", name, tokens, next,
                                   Geometry::kPositions - 1),
                         {id_, -1});
  }
  const std::int64_t before = most_staged();
  Status status;
  try {
    status = append_claimed(layer, incoming, buffers);
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

Status StagedSequence::append_claimed(std::int64_t layer, const Incoming& incoming, PoolBuffers& buffers) {
  const TokenBatch& batch = incoming.batch;
  const std::int64_t tokens = incoming.tokens;
  const Geometry& geometry = store_.geometry;
  const LayerLayout& at = store_.layout.layers[static_cast<std::size_t>(layer)];
  const std::int64_t begin = layer_tokens_[static_cast<std::size_t>(layer)];
  if (Status s = tokens_.claim(begin + tokens); !s.ok()) return s;
  if (Status s = groups_.claim(groups_of(begin + tokens)); !s.ok()) return s;
  if (Status s = write_coordinates(batch, begin, tokens); !s.ok()) return s;
  if (at.groups != kAbsent) {
    if (Status s = write_groups(incoming, at.groups, begin); !s.ok()) return s;
  }
  if (at.pooled == kAbsent) return {};
  if (at.raw == kAbsent) return write_finished_keys(layer, batch.index_keys, begin, buffers);
  if (Status s = write_raw_keys(batch.index_keys, at.raw, begin); !s.ok()) return s;
  return pool_closed_groups(layer, geometry.index_keys(begin), geometry.index_keys(begin + tokens), buffers);
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
                           formatted("coordinates: token {} has others in a layer staged before", t), {t, -1});
    }
  }
  return {};
}

// Writes [T, heads, dim] to where `to(slot, head)` says in a token page; `from(t)` is token t's vector of head 0.
template <typename From, typename To>
Status StagedSequence::write_vectors(std::string_view name, const ConstTensor& shape, std::int64_t begin, From from,
                                     To to) {
  const std::int64_t dim = shape.shape[2];
  const RowKernels& kernels = row_kernels(store_.kernels);
  for (std::int64_t t = 0; t < shape.shape[0]; ++t) {
    const auto [page, in_page] = tokens_.slot(begin + t);
    const std::byte* vector = from(t);
    for (std::int64_t head = 0; head < shape.shape[1]; ++head, vector += shape.stride_bytes[1]) {
      std::byte* place = page + to(in_page, head);
      if (std::isfinite(copy_row(kernels, vector, shape.stride_bytes[2], dim, shape.dtype, place))) continue;
      return not_finite(name, t, head * dim + first_not_finite(place, dim, shape.dtype));
    }
  }
  return {};
}

// Keys and values into the groups' blocks, which begin at `groups` of a page.
Status StagedSequence::write_groups(const Incoming& incoming, std::int64_t groups, std::int64_t begin) {
  const GroupBlock block = GroupBlock::of(store_.geometry);
  const auto write = [&](std::string_view name, const ConstTensor& tensor, auto place, auto held) {
    const auto to = [&](std::int64_t slot, std::int64_t head) { return groups + place(slot, head); };
    if (incoming.held == nullptr)
      return write_vectors(name, tensor, begin, [&](std::int64_t t) { return tensor.at(t); }, to);
    LayerWalk walk(*incoming.held, 0);
    return write_vectors(
        name, tensor, begin, [&](std::int64_t t) { return held(walk.at(incoming.batch.first_position + t)); }, to);
  };
  Status status = write(
      "keys", incoming.batch.keys, [&](auto slot, auto head) { return block.key_at(slot, head); },
      [](LayerWalk::Token token) { return token.key; });
  if (!status.ok() || store_.geometry.values_alias_keys()) return status;
  return write(
      "values", incoming.batch.values, [&](auto slot, auto head) { return block.value_at(slot, head); },
      [](LayerWalk::Token token) { return token.value; });
}

Status StagedSequence::write_raw_keys(const ConstTensor& source, std::int64_t raw, std::int64_t begin) {
  ConstTensor one_head = source;  // [T, index_dim] as [T, 1, index_dim]
  one_head.shape = {source.shape[0], 1, source.shape[1], 1};
  one_head.stride_bytes = {source.stride_bytes[0], 0, source.stride_bytes[1], 0};
  const std::int64_t bytes_per_row = row_bytes(source.dtype, source.shape[1]);
  return write_vectors(
      "index_keys", one_head, begin, [&](std::int64_t t) { return source.at(t); },
      [&](std::int64_t slot, std::int64_t) { return raw + slot * bytes_per_row; });
}

Status StagedSequence::write_finished_keys(std::int64_t layer, const ConstTensor& source, std::int64_t begin,
                                           PoolBuffers& buffers) {
  const RowKernels& kernels = row_kernels(store_.kernels);
  for (std::int64_t t = 0; t < source.shape[0]; ++t) {
    std::byte* key = buffers.raw.data();
    const float largest = copy_row(kernels, source.at(t), source.stride_bytes[1], source.shape[1], source.dtype, key);
    if (!std::isfinite(largest))
      return not_finite("index_keys", t, first_not_finite(key, source.shape[1], source.dtype));
    scatter_pooled(layer, begin + t, key);
    largest_pooled_ = std::max(largest_pooled_, largest);
  }
  return {};
}

// The raw keys of `groups` groups that lie in one page, or of one group that straddles two, which is gathered.
const std::byte* StagedSequence::raw_keys(std::int64_t block, std::int64_t group, std::int64_t groups,
                                          PoolBuffers& buffers) const {
  const std::int64_t r = store_.geometry.key_tokens();
  const std::int64_t bytes_per_row = row_bytes(store_.geometry.index_dtype(), store_.geometry.index_dim());
  const auto [first, slot] = tokens_.slot(group * r);
  if (slot + groups * r <= store_.layout.page_tokens) return first + block + slot * bytes_per_row;
  for (std::int64_t t = 0; t < r; ++t) {
    const auto [page, in_page] = tokens_.slot(group * r + t);
    std::memcpy(buffers.raw.data() + t * bytes_per_row, page + block + in_page * bytes_per_row,
                static_cast<std::size_t>(bytes_per_row));
  }
  return buffers.raw.data();
}

// What append has taken is finite; what a file says may be anything.
Status StagedSequence::check_finite(const std::byte* raw, std::int64_t first_token, std::int64_t tokens) const {
  if (!base_->mapping) return {};
  const std::int64_t dim = store_.geometry.index_dim();
  const DType dtype = store_.geometry.index_dtype();
  if (std::isfinite(row_kernels(store_.kernels).largest(raw, tokens * dim, dtype))) return {};
  const std::int64_t fault = first_not_finite(raw, tokens * dim, dtype);
  return not_finite("index_keys", first_token + fault / dim, fault % dim);
}

Status StagedSequence::pool_closed_groups(std::int64_t layer, std::int64_t begin, std::int64_t end,
                                          PoolBuffers& buffers) {
  const std::int64_t r = store_.geometry.key_tokens();
  const std::int64_t raw_block = store_.layout.layers[static_cast<std::size_t>(layer)].raw;
  const float* weight = store_.norm_weights[static_cast<std::size_t>(layer)].data();
  std::array<Coordinates, kPanel> at;
  for (std::int64_t group = begin; group < end;) {
    // As many as one panel takes and one page of tokens has.
    const std::int64_t lanes = kPanel - groups_.slot(group).in_page % kPanel;
    const std::int64_t whole = (store_.layout.page_tokens - tokens_.slot(group * r).in_page) / r;
    const std::int64_t groups = std::min({end - group, lanes, std::max<std::int64_t>(whole, 1)});
    const std::byte* raw = raw_keys(raw_block, group, groups, buffers);
    if (Status s = check_finite(raw, group * r, groups * r); !s.ok()) return s;
    const bool placed = store_.layout.coordinates != kAbsent;
    for (std::int64_t g = 0; placed && g < groups; ++g) {
      const auto [page, in_page] = tokens_.slot((group + g) * r);
      std::memcpy(&at[static_cast<std::size_t>(g)],
                  page + store_.layout.coordinates + in_page * static_cast<std::int64_t>(sizeof(Coordinates)),
                  sizeof(Coordinates));
    }
    const float largest = buffers.pooler.pool(weight, raw, groups, base_->run.anchor + group * r,
                                              placed ? at.data() : nullptr, pooled_lane(layer, group));
    largest_pooled_ = std::max(largest_pooled_, largest);
    group += groups;
  }
  return {};
}

// Where dim 0 of a pooled key lies; its other dims follow a panel's width apart.
std::byte* StagedSequence::pooled_lane(std::int64_t layer, std::int64_t group) const {
  const auto [page, in_page] = groups_.slot(group);
  const std::int64_t element = in_page / kPanel * (kPanel * store_.geometry.index_dim()) + in_page % kPanel;
  return page + store_.layout.layers[static_cast<std::size_t>(layer)].pooled +
         element * dtype_bytes(store_.geometry.index_dtype());
}

void StagedSequence::scatter_pooled(std::int64_t layer, std::int64_t group, const std::byte* row) {
  const std::int64_t element_bytes = dtype_bytes(store_.geometry.index_dtype());
  std::byte* lane = pooled_lane(layer, group);
  for (std::int64_t i = 0; i < store_.geometry.index_dim(); ++i) {
    std::memcpy(lane + i * kPanel * element_bytes, row + i * element_bytes, static_cast<std::size_t>(element_bytes));
  }
}

void StagedSequence::shrink(std::int64_t tokens) noexcept {
  const std::int64_t end = base_->run.tokens + tokens;
  for (std::int64_t& count : layer_tokens_) count = std::min(count, end);
  tokens_.shrink(end);
  groups_.shrink(groups_of(end));
}

void StagedSequence::shrink_layer(std::int64_t layer, std::int64_t tokens) noexcept {
  layer_tokens_[static_cast<std::size_t>(layer)] = base_->run.tokens + tokens;
  tokens_.shrink(frontier());
  groups_.shrink(groups_of(frontier()));
}

Ref<const SequenceState> StagedSequence::published(std::int64_t tokens) const {
  if (tokens == 0 && !repools_) return base_;
  const std::int64_t end = base_->run.tokens + tokens;
  return SequenceState::make(base_->store, {base_->run.anchor, end}, tokens_.published(end),
                             groups_.published(groups_of(end)), largest_pooled_, base_->mapping);
}

void StagedSequence::keep(std::int64_t tokens) noexcept {
  shrink(tokens);
  tokens_.keep();
  groups_.keep();
}

LayerView StagedSequence::view(std::int64_t layer) const {
  const VisibleRun run{base_->run.anchor, layer_tokens_[static_cast<std::size_t>(layer)]};
  LayerView view = view_layer(store_, layer, run, tokens_.table(), tokens_.first(), groups_.table(), groups_.first(),
                              largest_pooled_, base_->mapping.get());
  view.state = base_.get();
  view.staged = true;
  return view;
}

}  // namespace seriatim
