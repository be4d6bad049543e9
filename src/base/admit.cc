#include "base/admit.hpp"

#include <cmath>

#include "base/checked.hpp"
#include "base/format.hpp"
#include "base/half.hpp"

namespace seriatim {
namespace {

Status invalid(std::string_view name, std::string_view what) {
  return Status::error(Code::kInvalidArgument, name, formatted("{}: {}", name, what));
}

}  // namespace

int overlapping_axis(const ConstTensor& view) {
  const auto rank = static_cast<std::size_t>(view.rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (view.shape[axis] == 0) return -1;
  }
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (view.shape[axis] == 1) continue;
    std::int64_t reach_bytes = dtype_bytes(view.dtype);  // admitted: it fits 64 bits
    for (std::size_t other = 0; other < rank; ++other) {
      const bool shorter = view.stride_bytes[other] < view.stride_bytes[axis] ||
                           (view.stride_bytes[other] == view.stride_bytes[axis] && other > axis);
      if (shorter) reach_bytes += view.stride_bytes[other] * (view.shape[other] - 1);
    }
    if (view.stride_bytes[axis] < reach_bytes) return static_cast<int>(axis);
  }
  return -1;
}

Status admit_view(std::string_view name, const ConstTensor& view, DType dtype,
                  std::initializer_list<std::int64_t> shape) {
  if (view.dtype != dtype) {
    return invalid(name, formatted("dtype {} where {} is needed", dtype_name(view.dtype), dtype_name(dtype)));
  }
  if (view.rank != static_cast<int>(shape.size())) {
    return invalid(name, formatted("rank {} where {} is needed", view.rank, shape.size()));
  }
  std::int64_t elements = 1;
  std::int64_t reach_bytes = 0;
  std::size_t axis = 0;
  for (const std::int64_t wanted : shape) {
    const std::int64_t extent = view.shape[axis];
    const std::int64_t stride_bytes = view.stride_bytes[axis];
    if (extent < 0 || (wanted >= 0 && extent != wanted)) {
      return invalid(name, formatted("axis {} has extent {}{}", axis, extent,
                                     wanted < 0 ? "" : formatted(" where {} is needed", wanted)));
    }
    if (stride_bytes < 0 || stride_bytes % dtype_bytes(dtype) != 0) {
      return invalid(name, formatted("axis {} has a stride of {} bytes, not a multiple of {}", axis, stride_bytes,
                                     dtype_bytes(dtype)));
    }
    const auto span = checked_mul(extent > 0 ? extent - 1 : 0, stride_bytes);
    const auto count = checked_mul(elements, extent);
    const auto reach = span ? checked_add(reach_bytes, *span) : std::nullopt;
    if (!count || !reach) {
      return Status::error(
          Code::kOverflow, name,
          formatted("{}: axis {} of extent {} and stride {} passes 64-bit sizes", name, axis, extent, stride_bytes));
    }
    elements = *count;
    reach_bytes = *reach;
    ++axis;
  }
  for (; axis < kMaxRank; ++axis) {  // readers that take every view as of rank 4 rely on it
    if (view.shape[axis] != 1)
      return invalid(name, formatted("axis {} has extent {} past rank {}", axis, view.shape[axis], view.rank));
  }
  if (elements > 0 && view.data == nullptr) return invalid(name, "no data");
  return {};
}

Status admit_view(std::string_view name, const Tensor& view, DType dtype, std::initializer_list<std::int64_t> shape) {
  if (Status s = admit_view(name, as_const(view), dtype, shape); !s.ok()) return s;
  if (overlapping_axis(as_const(view)) >= 0)
    return invalid(name, "two of its elements share memory, and it is written");
  return {};
}

Status admit_finite(std::string_view name, const ConstTensor& view) {
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    std::int64_t index = 0;
    for (std::int64_t j = 0; j < view.shape[1]; ++j) {
      for (std::int64_t k = 0; k < view.shape[2]; ++k) {
        for (std::int64_t l = 0; l < view.shape[3]; ++l, ++index) {
          const float value = load_element(view.at(i, j, k, l), view.dtype);
          if (!std::isfinite(value)) {
            return Status::error(Code::kNotFinite, name,
                                 formatted("{}: element {} of row {} is {}", name, index, i, value), {i, index});
          }
        }
      }
    }
  }
  return {};
}

}  // namespace seriatim
