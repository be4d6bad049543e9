// Arrays in and out: NumPy arrays, torch tensors and whatever else speaks DLPack, as views without copies.
//
// Everything here needs the interpreter's lock, but for reading what `view` shows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "array_kinds.hpp"
#include "seriatim/index.hpp"
#include "seriatim/tensor.hpp"
#include "torch_tensors.hpp"

namespace seriatim::python {

namespace nb = nanobind;

// A view, and what keeps its memory alive. Empty where the caller gave None.
template <typename View>
struct Held {
  View view;
  nb::object owner;           // of NumPy's arrays and torch's tensors
  nb::ndarray<nb::ro> array;  // of what came by DLPack
};
using Input = Held<ConstTensor>;
using Output = Held<Tensor>;

// None gives an empty view. An axis of at most one element may have any stride.
// Errors  InvalidArgument, naming `argument`: no array; a subclass that may mean more than its elements, such as a
//         masked array; memory of a device; a dtype that is none of f32, bf16, f16, i32, i64; more than four axes; a
//         negative stride; extents without memory; what torch_view refuses.
Input input(nb::handle object, const char* argument, Gradient gradient = Gradient::kRefused);
Output output(nb::handle object, const char* argument);  // also InvalidArgument: memory that is read-only

// One that the caller gave, of which autograd must know that it is written.
Output given_output(nb::handle object, const char* argument);

// The same, with the number of axes checked; the library checks extents.
Input input(nb::handle object, const char* argument, int rank);

// Small vectors are copied: an int, a sequence, or an array of i32 or i64 (floats: f32, bf16 or f16, widened).
std::vector<std::int64_t> integers(nb::handle object, const char* argument);
std::vector<float> floats(nb::handle object, const char* argument);
std::vector<Coordinates> coordinates(nb::handle object, const char* argument);  // [T, 3]; None: empty

void check_shape(const ConstTensor& view, const char* argument, std::initializer_list<std::int64_t> shape);

}  // namespace seriatim::python
