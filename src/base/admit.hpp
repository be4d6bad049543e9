// Admission of tensor views: one place that says what a view must look like, so that every room refuses alike.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Errors  InvalidArgument, naming `name`: null data with elements to read, another dtype, rank or extent (-1 in `shape`
//         admits any), an extent past the rank that is not 1, a negative stride or one that is not a multiple of the
//         element size. Overflow: a count or a reach past 64 bits.
Status admit_view(std::string_view name, const ConstTensor& view, DType dtype,
                  std::initializer_list<std::int64_t> shape);
// Besides, for what is written: two elements that may share memory.
Status admit_view(std::string_view name, const Tensor& view, DType dtype, std::initializer_list<std::int64_t> shape);

// Whether an optional view was left out: it has neither memory nor axes. One with axes and no memory was not;
// admit_view refuses it.
template <typename Byte>
bool left_out(const BasicTensor<Byte>& view) {
  return view.data == nullptr && view.rank == 0;
}

// The first axis along which two elements of an admitted view may share memory: one that does not step over all that
// the axes of shorter strides reach; -1 if there is none.
int overlapping_axis(const ConstTensor& view);

// Errors  NotFinite, naming the first element: row = its first coordinate, index = its place in what is left.
// `view` is admitted and holds f32, bf16 or f16.
Status admit_finite(std::string_view name, const ConstTensor& view);

}  // namespace seriatim
