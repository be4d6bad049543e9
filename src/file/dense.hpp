// Between strided views and the dense row-major bytes of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::file {

// The number of elements times `element_bits`, in bytes. Absent when an extent is negative, when the bits are no whole
// number of bytes, or when the extents, those of 0 left aside, pass 64 bits: strides must fit even where nothing is.
std::optional<std::int64_t> dense_bytes(std::span<const std::int64_t> shape, std::int64_t element_bits);

// Takes a shape of at most kMaxRank extents that dense_bytes has admitted.
ConstTensor dense_view_of(const std::byte* data, DType dtype, std::span<const std::int64_t> shape);

// Whether a view can be written: rank, extents and strides in range, data where there are elements.
// Errors  kInvalidArgument for `argument`.
Status admit_view(const ConstTensor& view, std::string_view argument);

// Calls `sink(std::span<const std::byte>) -> Status` with the elements in row-major order, in runs as long as lie
// together, until all were given or a call fails. Takes an admitted view.
template <typename Sink>
Status for_each_run(const ConstTensor& view, Sink&& sink) {
  for (const std::int64_t extent : view.shape) {
    if (extent == 0) return {};
  }
  int outer = kMaxRank;  // axes outer.. lie dense in memory
  std::int64_t run_bytes = dtype_bytes(view.dtype);
  for (std::size_t axis = kMaxRank; axis-- > 0;) {
    if (view.shape[axis] != 1 && view.stride_bytes[axis] != run_bytes) break;
    run_bytes *= view.shape[axis];
    outer = static_cast<int>(axis);
  }
  const auto extent = [&](int axis) { return axis < outer ? view.shape[static_cast<std::size_t>(axis)] : 1; };
  for (std::int64_t i0 = 0; i0 < extent(0); ++i0) {
    for (std::int64_t i1 = 0; i1 < extent(1); ++i1) {
      for (std::int64_t i2 = 0; i2 < extent(2); ++i2) {
        for (std::int64_t i3 = 0; i3 < extent(3); ++i3) {
          Status status = sink(std::span(view.at(i0, i1, i2, i3), static_cast<std::size_t>(run_bytes)));
          if (!status.ok()) return status;
        }
      }
    }
  }
  return {};
}

}  // namespace seriatim::file
