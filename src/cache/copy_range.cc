// A range of one sequence handed to another as batches: views of page memory, page by page.
#include <algorithm>
#include <cstring>

#include "cache/staged.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

// [tokens, heads, dim] that lie as a view's strides say, but for blocks, which a tensor cannot tell.
ConstTensor vectors_view(const std::byte* first, DType dtype, std::int64_t tokens, std::int64_t heads, std::int64_t dim,
                         const VectorStrides& strides) {
  ConstTensor view = dense_view(first, dtype, {tokens, heads, dim});
  view.stride_bytes[0] = strides.token_bytes;
  view.stride_bytes[1] = strides.head_bytes;
  return view;
}

// [tokens, dim] over lanes of one panel.
ConstTensor lanes_view(const PooledKeys& pooled, std::int64_t first, std::int64_t tokens) {
  ConstTensor view = dense_view(pooled.group(first), pooled.dtype, {tokens, pooled.dim});
  view.stride_bytes[0] = dtype_bytes(pooled.dtype);
  view.stride_bytes[1] = row_bytes(pooled.dtype, kPanel);
  return view;
}

// Tokens from `position` that lie in one page, and in one panel where the keys are there alone.
std::int64_t piece_tokens(const LayerView& from, std::int64_t position, std::int64_t most) {
  const std::int64_t offset = position - from.run.anchor;
  std::int64_t piece = std::min(most, from.page_tokens - (from.first_slot + offset) % from.page_tokens);
  if (from.indexed && from.raw_offset_bytes == kAbsent) {
    piece = std::min(piece, kPanel - (from.pooled.first_slot + offset) % kPanel);
  }
  return piece;
}

TokenBatch piece_batch(const LayerView& from, std::int64_t position, std::int64_t tokens) {
  const Geometry& g = *from.geometry;
  TokenBatch batch;
  batch.first_position = position;
  const bool keys = from.key_offset_bytes != kAbsent;
  if (keys) {
    batch.keys =
        vectors_view(from.key(position, 0), g.kv_dtype(), tokens, g.kv_heads(), g.head_dim(), from.key_strides);
  }
  if (keys && !g.values_alias_keys()) {
    batch.values =
        vectors_view(from.value(position, 0), g.kv_dtype(), tokens, g.kv_heads(), g.value_dim(), from.value_strides);
  }
  if (!from.indexed) return batch;
  batch.index_keys = from.raw_offset_bytes == kAbsent
                         ? lanes_view(from.pooled, position - from.run.anchor, tokens)
                         : dense_view(from.raw_index_key(position), g.index_dtype(), {tokens, g.index_dim()});
  return batch;
}

}  // namespace

Status StagedSequence::append_from(const SequenceState& from, std::int64_t first_position, std::int64_t tokens,
                                   PoolBuffers& buffers) {
  std::vector<Coordinates> coordinates;
  for (std::size_t layer = 0; layer < store_.layout.layers.size(); ++layer) {
    const LayerView view = view_layer(from, static_cast<std::int64_t>(layer));
    for (std::int64_t done = 0; done < tokens;) {
      const std::int64_t position = first_position + done;
      const std::int64_t piece = piece_tokens(view, position, tokens - done);
      TokenBatch batch = piece_batch(view, position, piece);
      coordinates.clear();
      for (std::int64_t t = 0; t < piece; ++t) coordinates.push_back(view.coordinates(position + t));
      batch.coordinates = coordinates.data();
      if (Status s = append_admitted(static_cast<std::int64_t>(layer), {batch, piece, &view}, buffers); !s.ok())
        return s;
      done += piece;
    }
  }
  return from.check();
}

}  // namespace seriatim
