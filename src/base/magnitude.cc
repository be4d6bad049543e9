#include "base/magnitude.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/half.hpp"

namespace seriatim {
namespace {

// Without its sign an IEEE number orders as its bits do, with NaN above all.
float largest(const std::byte* elements, std::int64_t count, DType dtype) {
  std::uint32_t most = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = load_element(elements + row_bytes(dtype, i), dtype);
    most = std::max(most, std::bit_cast<std::uint32_t>(value) & ~kF32SignMask);
  }
  return std::bit_cast<float>(most);
}

float copy(const std::byte* from, std::int64_t elements, DType dtype, std::byte* to) {
  std::memcpy(to, from, static_cast<std::size_t>(row_bytes(dtype, elements)));
  return largest(to, elements, dtype);
}

}  // namespace

const RowKernels& row_reference() {
  static constexpr RowKernels kTable{"reference", copy, largest};
  return kTable;
}

float largest_magnitude(const ConstTensor& view) {
  const RowKernels& kernels = row_kernels(default_kernels());
  const auto last = static_cast<std::size_t>(std::max(view.rank, 1) - 1);
  const bool dense = view.stride_bytes[last] == dtype_bytes(view.dtype);
  ConstTensor rows = view;  // one element each, or the whole last axis where it is dense
  const std::int64_t elements = dense ? std::exchange(rows.shape[last], std::int64_t{1}) : 1;
  float most = 0.0f;
  for (std::int64_t i = 0; i < rows.shape[0]; ++i) {
    for (std::int64_t j = 0; j < rows.shape[1]; ++j) {
      for (std::int64_t k = 0; k < rows.shape[2]; ++k) {
        for (std::int64_t l = 0; l < rows.shape[3]; ++l)
          most = larger_magnitude(most, kernels.largest(rows.at(i, j, k, l), elements, view.dtype));
      }
    }
  }
  return most;
}

std::int64_t first_not_finite(const std::byte* row, std::int64_t elements, DType dtype) {
  for (std::int64_t i = 0; i < elements; ++i) {
    if (!std::isfinite(load_element(row + row_bytes(dtype, i), dtype))) return i;
  }
  return -1;
}

}  // namespace seriatim
