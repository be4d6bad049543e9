#include "file/dense.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/format.hpp"

namespace seriatim::file {

std::optional<std::int64_t> dense_bytes(std::span<const std::int64_t> shape, std::int64_t element_bits) {
  const bool whole_bytes = element_bits % 8 == 0;
  std::optional<std::int64_t> size = whole_bytes ? element_bits / 8 : element_bits;
  bool empty = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
    size = checked_mul(*size, std::max<std::int64_t>(extent, 1));
    if (!size) return std::nullopt;
  }
  if (empty) return 0;
  if (whole_bytes) return size;
  return *size % 8 == 0 ? std::optional(*size / 8) : std::nullopt;
}

ConstTensor dense_view_of(const std::byte* data, DType dtype, std::span<const std::int64_t> shape) {
  ConstTensor view;
  view.data = data;
  view.dtype = dtype;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride_bytes = dtype_bytes(dtype);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    view.shape[axis] = shape[axis];
    view.stride_bytes[axis] = stride_bytes;
    stride_bytes *= shape[axis];
  }
  return view;
}

Status admit_view(const ConstTensor& view, std::string_view argument) {
  const auto refuse = [&](std::string_view why) {
    return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, why));
  };
  const std::int64_t element_bytes = dtype_bytes(view.dtype);
  if (element_bytes == 0) return refuse("has an unknown dtype");
  if (view.rank < 0 || view.rank > kMaxRank) return refuse("has a rank outside 0..4");
  const auto rank = static_cast<std::size_t>(view.rank);
  for (std::size_t axis = rank; axis < kMaxRank; ++axis) {
    if (view.shape[axis] != 1) return refuse("has an unused extent that is not 1");
  }
  const std::optional<std::int64_t> bytes = dense_bytes(std::span(view.shape).first(rank), 8 * element_bytes);
  if (!bytes) return refuse("has a negative extent or a size past 64 bits");
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (view.stride_bytes[axis] < 0) return refuse("has a negative stride");
    if (!checked_mul(view.stride_bytes[axis], view.shape[axis])) return refuse("has a stride past 64 bits");
  }
  if (*bytes > 0 && view.data == nullptr) return refuse("has elements but no data");
  return {};
}

}  // namespace seriatim::file
