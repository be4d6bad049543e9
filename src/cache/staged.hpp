// One sequence inside an open transaction: its base, what was claimed for it, and how far each layer has come.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/page_run.hpp"
#include "cache/state.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

// What stands between raw keys in pages and pooled keys in panels; made once per cache, so that appending needs no
// memory.
struct PoolBuffers {
  // Errors  Overflow, OutOfMemory. Throws bad_alloc.
  static Result<PoolBuffers> make(const Geometry& geometry, const Layout& layout, Kernels kernels);

  Pooler pooler;
  std::vector<std::byte> raw;  // [r, index_dim]: a group that straddles two pages, or one finished key
};

class StagedSequence {
 public:
  // `repool`: the base has no pooled keys yet (see state_suffix), and repool() comes first. Throws bad_alloc.
  StagedSequence(SequenceId id, Ref<const SequenceState> base, bool repool = false);

  // Pools all complete groups of the base. Errors  Capacity, OutOfMemory. Throws bad_alloc.
  Status repool(PoolBuffers& buffers);

  // Appends to every layer what `from` holds at positions [first, first + tokens). Errors and throws as append.
  Status append_from(const SequenceState& from, std::int64_t first_position, std::int64_t tokens, PoolBuffers& buffers);

  // As Transaction::append, for a layer that exists. Throws bad_alloc; nothing of the call is staged then.
  Status append(std::int64_t layer, const TokenBatch& batch, PoolBuffers& buffers);

  // Staged tokens of the layer that has come furthest, or the least far.
  std::int64_t most_staged() const;
  std::int64_t least_staged() const;
  std::int64_t staged(std::int64_t layer) const {
    return layer_tokens_[static_cast<std::size_t>(layer)] - base_->run.tokens;
  }

  // Forgets what lies past the first `tokens` staged tokens.
  void shrink(std::int64_t tokens) noexcept;
  // The same in one layer, which has no fewer staged tokens.
  void shrink_layer(std::int64_t layer, std::int64_t tokens) noexcept;

  // The state to publish with the first `tokens` staged tokens, which all layers hold. It becomes valid with keep(),
  // which forgets the others and gives nothing back any more. Throws bad_alloc.
  Ref<const SequenceState> published(std::int64_t tokens) const;
  void keep(std::int64_t tokens) noexcept;

  SequenceId id() const { return id_; }
  const SequenceState& base() const { return *base_; }
  LayerView view(std::int64_t layer) const;

 private:
  // What is appended. With `held` the keys and values are those that another sequence holds at the batch's positions;
  // then the batch's own say their shapes, and how far apart heads and elements lie.
  struct Incoming {
    const TokenBatch& batch;
    std::int64_t tokens = 0;
    const LayerView* held = nullptr;
  };

  Status append_admitted(std::int64_t layer, const Incoming& incoming, PoolBuffers& buffers);
  Status append_claimed(std::int64_t layer, const Incoming& incoming, PoolBuffers& buffers);
  Status write_coordinates(const TokenBatch& batch, std::int64_t begin, std::int64_t tokens);
  template <typename From, typename To>
  Status write_vectors(std::string_view name, const ConstTensor& shape, std::int64_t begin, From from, To to);
  Status write_groups(const Incoming& incoming, std::int64_t groups, std::int64_t begin);
  Status write_raw_keys(const ConstTensor& source, std::int64_t raw, std::int64_t begin);
  Status write_finished_keys(std::int64_t layer, const ConstTensor& source, std::int64_t begin, PoolBuffers& buffers);
  Status pool_closed_groups(std::int64_t layer, std::int64_t begin, std::int64_t end, PoolBuffers& buffers);
  const std::byte* raw_keys(std::int64_t block, std::int64_t group, std::int64_t groups, PoolBuffers& buffers) const;
  Status check_finite(const std::byte* raw, std::int64_t first_token, std::int64_t tokens) const;
  std::byte* pooled_lane(std::int64_t layer, std::int64_t group) const;
  void scatter_pooled(std::int64_t layer, std::int64_t group, const std::byte* row);
  std::int64_t groups_of(std::int64_t tokens) const;  // 0 when no layer has an index
  std::int64_t frontier() const;                      // tokens of the layer that has come furthest

  const SequenceId id_;
  const Ref<const SequenceState> base_;
  Store& store_;
  const bool repools_;
  PageRun tokens_;
  PageRun groups_;
  std::vector<std::int64_t> layer_tokens_;
  float largest_pooled_;  // of every pooled key that was written, kept or not
};

}  // namespace seriatim
