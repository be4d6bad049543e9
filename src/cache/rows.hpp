// Rows of elements on their way into pages: admitted, copied, checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/magnitude.hpp"
#include "cache/layout.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

// Takes   what the layer keeps
// Gives   T, the number of tokens.
// Errors  InvalidArgument, Overflow: the batch's tensors do not fit the geometry or each other.
Result<std::int64_t> admit_batch(const Geometry& geometry, const LayerLayout& keeps, const TokenBatch& batch);

// Copies `elements` elements, `stride_bytes` apart, to a dense and aligned row.
// Gives   the largest magnitude; infinity if one is not finite, and it has been copied all the same.
float copy_row(const RowKernels& kernels, const std::byte* from, std::int64_t stride_bytes, std::int64_t elements,
               DType dtype, std::byte* to);

Status not_finite(std::string_view tensor, std::int64_t token, std::int64_t element);

}  // namespace seriatim
