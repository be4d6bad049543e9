// Torch tensors, read through their own attributes: an eighth of what DLPack costs, which besides carries neither the
// negative bit nor the size of the storage.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "seriatim/tensor.hpp"

namespace seriatim::python {

namespace nb = nanobind;

// What is looked up by name once and then kept until the process ends: a module's types and functions do not change.
struct Torch {
  nb::object tensor_type, parameter_type, strided, empty, increment_version, is_tracing, dispatch_modes, forward_ad;
  std::array<nb::object, 5> dtypes;  // in the order of DType

  explicit Torch(nb::handle module);
};

// Null as long as nobody has imported torch.
const Torch* torch();

enum class Gradient { kRefused, kIgnored };

// The tensor as it lies; empty for None. An axis of one element is given the stride that it would have in a dense
// tensor.
// Errors  InvalidArgument, naming `argument`: no tensor; a subclass but Parameter, whose meaning we do not know; a
//         layout or a wrapper without strided memory of its own (sparse, nested, vmap's and grad's); the negative bit;
//         memory of a device; a dtype that is none of f32, bf16, f16, i32, i64; more than four axes; a storage that is
//         smaller than the extents, as one that was freed; a tensor that requires a gradient, unless that is ignored,
//         or carries a tangent; a tracer at work, which would keep this call's result as a constant.
template <typename Byte>
BasicTensor<Byte> torch_view(nb::handle tensor, const char* argument, Gradient gradient);

// Tells autograd that the tensor is written, so that a graph that saved it refuses to go back through it.
void announce_write(nb::handle tensor);

}  // namespace seriatim::python
