// What kind of array an object is, and new arrays of that kind. NumPy's and torch's types are looked up once a process.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>

#include "seriatim/tensor.hpp"

namespace seriatim::python {

namespace nb = nanobind;

bool is_numpy(nb::handle object);
bool is_plain_numpy(nb::handle object);  // of no subclass but NumPy's own memmap, matrix and recarray
bool is_torch(nb::handle object);        // torch is never imported on behalf of a caller who has not done so

// ml_dtypes' bfloat16 has no DLPack export in NumPy; its bits have.
bool is_numpy_bf16(nb::handle object);

// A new array of the kind of `like`: a torch tensor for a torch tensor, else a NumPy array.
// Errors  Unsupported: a bf16 NumPy array without ml_dtypes.
nb::object empty_like_kind(nb::handle like, DType dtype, std::initializer_list<std::int64_t> shape);

// Where no elements are, there may be no address; a null view would mean that the tensor was not given at all.
inline std::byte no_elements[8];

// Axes of at most one element have no stride: they get the one that they would have in a dense tensor. A view has an
// address, whatever its extents are.
template <typename Byte>
void settle(BasicTensor<Byte>& view) {
  std::uint64_t dense = static_cast<std::uint64_t>(dtype_bytes(view.dtype));
  for (auto axis = static_cast<std::size_t>(view.rank); axis-- > 0;) {
    const std::int64_t extent = view.shape[axis];
    if (extent <= 1) view.stride_bytes[axis] = static_cast<std::int64_t>(dense);
    dense = static_cast<std::uint64_t>(view.stride_bytes[axis]) * static_cast<std::uint64_t>(extent);
  }
  if (view.data == nullptr) view.data = no_elements;
}

// "f32", torch.float32, numpy.float32 and the like; None: `otherwise`.
DType dtype_of(nb::handle object, const char* argument, DType otherwise);

}  // namespace seriatim::python
