// ggml's tensors as the library's.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::plugin {

// Types that the kernels read where they lie.
inline std::optional<DType> plain_dtype(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return DType::kF32;
    case GGML_TYPE_F16:
      return DType::kF16;
    case GGML_TYPE_BF16:
      return DType::kBf16;
    default:
      return std::nullopt;
  }
}

// Types that ggml can widen to f32, row by row.
inline bool can_be_widened(ggml_type type) {
  return plain_dtype(type).has_value() || ggml_get_type_traits(type)->to_float != nullptr;
}

// A row of so many elements, at any alignment of its type, as f32.
void widen_row(ggml_type type, const std::byte* row, std::int64_t elements, float* to);

inline const std::byte* bytes_of(const ggml_tensor* tensor) { return static_cast<const std::byte*>(tensor->data); }

inline std::int64_t stride(const ggml_tensor* tensor, int axis) { return static_cast<std::int64_t>(tensor->nb[axis]); }

// The address of row `row` of the rows of axes 1 to 3, numbered through.
inline const std::byte* row_of(const ggml_tensor* tensor, std::int64_t row) {
  const std::int64_t i1 = row % tensor->ne[1];
  const std::int64_t i2 = row / tensor->ne[1] % tensor->ne[2];
  const std::int64_t i3 = row / tensor->ne[1] / tensor->ne[2];
  return bytes_of(tensor) + i1 * stride(tensor, 1) + i2 * stride(tensor, 2) + i3 * stride(tensor, 3);
}

// Equal extents from `axis` on.
inline bool same_extents(const ggml_tensor* a, const ggml_tensor* b, int axis) {
  for (int i = axis; i < GGML_MAX_DIMS; ++i) {
    if (a->ne[i] != b->ne[i]) return false;
  }
  return true;
}

// At least so many entries; what they held is lost.
template <typename T>
void grow_to(AlignedBuffer<T>& buffer, std::int64_t entries) {
  if (buffer.size() < entries) buffer = AlignedBuffer<T>(entries);
}
// At least so many elements; those that there are stay.
template <typename T>
void grow_to(std::vector<T>& elements, std::int64_t count) {
  if (static_cast<std::int64_t>(elements.size()) < count) elements.resize(static_cast<std::size_t>(count));
}

// Whether a node only shows what another has made.
inline bool is_view(const ggml_tensor* node) {
  switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE:
      return true;
    default:
      return false;
  }
}

// Whether the node or one of its sources has no elements.
inline bool is_empty_somewhere(const ggml_tensor* node) {
  if (ggml_is_empty(node)) return true;
  for (const ggml_tensor* source : node->src) {
    if (source != nullptr && ggml_is_empty(source)) return true;
  }
  return false;
}

// Axes (a, b, c) of `tensor` at stream `stream` as a view of rank 3.
inline ConstTensor view3(const ggml_tensor* tensor, DType dtype, int a, int b, int c, std::int64_t stream) {
  ConstTensor view;
  view.data = bytes_of(tensor) + stream * stride(tensor, 3);
  view.dtype = dtype;
  view.rank = 3;
  view.shape = {tensor->ne[a], tensor->ne[b], tensor->ne[c], 1};
  view.stride_bytes = {stride(tensor, a), stride(tensor, b), stride(tensor, c), 0};
  return view;
}

}  // namespace seriatim::plugin
