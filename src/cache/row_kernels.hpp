// The kernels that look at elements on their way into pages. One family per instruction set, and one that is scalar.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/half.hpp"
#include "seriatim/kernels.hpp"
#include "seriatim/tensor.hpp"

// One line per dtype that a page's elements may have: X(DType, Bits).
#define SERIATIM_ROW_KERNELS(X) \
  X(DType::kF32, std::uint32_t) X(DType::kBf16, std::uint16_t) X(DType::kF16, std::uint16_t)

namespace seriatim {

// The value of an element without its sign; a NaN counts as infinity.
inline float magnitude_of(std::uint32_t bits, DType dtype) {
  std::byte element[sizeof bits];
  std::memcpy(element, &bits, sizeof bits);  // little-endian: a half's bits come first
  const float value = load_element(element, dtype);
  return std::isnan(value) ? std::numeric_limits<float>::infinity() : value;
}

struct RowKernels {
  const char* name;  // of the instruction set that was compiled, "reference" for the scalar one

  // Copies dense elements, to where they do not overlap. Gives their largest magnitude, as `largest`.
  float (*copy)(const std::byte* from, std::int64_t elements, DType dtype, std::byte* to);
  // The largest magnitude of dense elements of a float dtype; infinity if one of them is not finite, 0 if there are
  // none.
  float (*largest)(const std::byte* elements, std::int64_t count, DType dtype);
};

const RowKernels& row_kernels(Kernels kernels);
const RowKernels& row_reference();

}  // namespace seriatim
