// The largest magnitude of elements, on their way into a page or where they lie: by it, whether all are finite, and
// whether a sum of products can overflow. One implementation per instruction set, and one that is scalar.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "seriatim/kernels.hpp"
#include "seriatim/tensor.hpp"

// One line per dtype that elements may have: X(DType, Bits).
#define SERIATIM_ROW_KERNELS(X) \
  X(DType::kF32, std::uint32_t) X(DType::kBf16, std::uint16_t) X(DType::kF16, std::uint16_t)

namespace seriatim {

struct RowKernels {
  const char* name;  // of the instruction set that was compiled, "reference" for the scalar one

  // Copies dense elements, to where they do not overlap. Gives their largest magnitude, as `largest`.
  float (*copy)(const std::byte* from, std::int64_t elements, DType dtype, std::byte* to);
  // The largest magnitude of dense elements of a float dtype, NaN above all; 0 if there are none.
  float (*largest)(const std::byte* elements, std::int64_t count, DType dtype);
};

const RowKernels& row_kernels(Kernels kernels);
const RowKernels& row_reference();

// Of two magnitudes; a NaN stays.
inline float larger_magnitude(float a, float b) { return b > a || std::isnan(b) ? b : a; }

// For those to whom a NaN is as bad as an infinity, and who go on comparing.
inline float bound_of(float magnitude) {
  return std::isnan(magnitude) ? std::numeric_limits<float>::infinity() : magnitude;
}

// Of all elements of a view of a float dtype, whatever its strides.
float largest_magnitude(const ConstTensor& view);

// The first of `elements` dense elements of a float dtype that is infinite or NaN, or -1.
std::int64_t first_not_finite(const std::byte* row, std::int64_t elements, DType dtype);

}  // namespace seriatim
