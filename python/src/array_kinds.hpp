// What kind of array an object is, and new arrays of that kind. NumPy's and torch's types are looked up once a process.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <initializer_list>

#include "seriatim/tensor.hpp"

namespace seriatim::python {

namespace nb = nanobind;

bool is_numpy(nb::handle object);
bool is_plain_numpy(nb::handle object);  // no subclass
bool is_torch(nb::handle object);        // torch is never imported on behalf of a caller who has not done so

// ml_dtypes' bfloat16 has no DLPack export in NumPy; its bits have.
bool is_numpy_bf16(nb::handle object);

// A new array of the kind of `like`: a torch tensor for a torch tensor, else a NumPy array.
// Errors  Unsupported: a bf16 NumPy array without ml_dtypes.
nb::object empty_like_kind(nb::handle like, DType dtype, std::initializer_list<std::int64_t> shape);

// "f32", torch.float32, numpy.float32 and the like; None: `otherwise`.
DType dtype_of(nb::handle object, const char* argument, DType otherwise);

}  // namespace seriatim::python
