#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <string>

#include "array_kinds.hpp"
#include "errors.hpp"

namespace seriatim::python {

namespace {

struct KnownDType {
  DType dtype;
  nb::dlpack::dtype code;
};

constexpr KnownDType kKnown[] = {
    {DType::kF32, {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 32, 1}},
    {DType::kF16, {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1}},
    {DType::kBf16, {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1}},
    {DType::kI32, {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int), 32, 1}},
    {DType::kI64, {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int), 64, 1}},
};

std::string kind_name(nb::handle object) { return nb::cast<std::string>(nb::str(object.type().attr("__name__"))); }

[[noreturn]] void refuse_import(nb::handle object, const char* argument, bool writable) {
  if (is_torch(object) && nb::cast<bool>(object.attr("requires_grad"))) {
    refuse(argument, "a tensor that requires a gradient; pass tensor.detach()");
  }
  if (is_numpy(object)) {
    if (writable && !nb::cast<bool>(object.attr("flags").attr("writeable")))
      refuse(argument, "an array that is read-only");
    refuse(argument, "an array that cannot be shared: its dtype is " +
                         nb::cast<std::string>(nb::str(nb::handle(nb::object(object.attr("dtype"))))) +
                         ", or its byte order is foreign, or its strides are no multiple of an element");
  }
  refuse(argument,
         "not an array that can be shared (" + kind_name(object) + "); pass a NumPy array or a torch CPU tensor");
}

template <typename Array>
Array import(nb::handle object, const char* argument, bool writable) {
  Array array;
  if (!nb::try_cast(object, array, false)) {
    PyErr_Clear();
    refuse_import(object, argument, writable);
  }
  return array;
}

// An array of no elements may have no address; a null view would mean that it was not given at all.
std::byte nothing[8];

std::optional<DType> dtype_of_format(const char* format) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (format[0]) {
    case 'f':
      return DType::kF32;
    case 'e':
      return DType::kF16;
    case 'i':
      return DType::kI32;
    case 'l':
    case 'q':
      return DType::kI64;
    default:
      return std::nullopt;
  }
}

// The short way for NumPy's own arrays, without a capsule. Gives an empty view where it does not lead: the long way
// then says why.
template <typename View>
View view_of_numpy(nb::handle object, bool writable) {
  View view;
  Py_buffer buffer;
  if (PyObject_GetBuffer(object.ptr(), &buffer, writable ? PyBUF_RECORDS : PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return view;
  }
  const std::optional<DType> dtype = dtype_of_format(buffer.format);
  bool fits = dtype && buffer.itemsize == dtype_bytes(*dtype) && buffer.ndim <= kMaxRank;
  for (int axis = 0; fits && axis < buffer.ndim; ++axis) {
    view.shape[static_cast<std::size_t>(axis)] = buffer.shape[axis];
    view.stride_bytes[static_cast<std::size_t>(axis)] = buffer.strides[axis];
    fits = buffer.strides[axis] >= 0 && buffer.strides[axis] % buffer.itemsize == 0;
  }
  if (fits) {
    view.data = static_cast<decltype(view.data)>(buffer.buf != nullptr ? buffer.buf : nothing);
    view.dtype = *dtype;
    view.rank = buffer.ndim;
  }
  PyBuffer_Release(&buffer);  // the memory is the array's
  return fits ? view : View{};
}

template <typename View, typename Array>
View view_of(const Array& array, const char* argument, bool is_bf16) {
  View view;
  // Pinned memory (3) is the host's too.
  if (array.device_type() != nb::device::cpu::value && array.device_type() != 3) {
    refuse(argument, "memory of a device; move it to the CPU first");
  }
  if (array.ndim() > static_cast<std::size_t>(kMaxRank)) {
    refuse(argument, "has " + std::to_string(array.ndim()) + " axes, at most " + std::to_string(kMaxRank) + " fit");
  }
  std::optional<DType> dtype = is_bf16 ? std::optional(DType::kBf16) : std::nullopt;
  for (const KnownDType& known : kKnown) {
    if (!is_bf16 && array.dtype() == known.code) dtype = known.dtype;
  }
  if (!dtype) refuse(argument, "its dtype is none of float32, bfloat16, float16, int32 and int64");
  view.data = reinterpret_cast<decltype(view.data)>(const_cast<void*>(static_cast<const void*>(array.data())));
  view.dtype = *dtype;
  view.rank = static_cast<int>(array.ndim());
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    view.shape[axis] = static_cast<std::int64_t>(array.shape(axis));
    view.stride_bytes[axis] = array.stride(axis) * dtype_bytes(*dtype);
    if (view.stride_bytes[axis] < 0)
      refuse(argument, "axis " + std::to_string(axis) + " has a negative stride; copy it first");
  }
  if (view.data == nullptr) view.data = nothing;
  return view;
}

}  // namespace

Input input(nb::handle object, const char* argument) {
  Input in;
  if (object.is_none()) return in;
  if (is_plain_numpy(object)) {
    in.view = view_of_numpy<ConstTensor>(object, false);
    in.owner = nb::borrow(object);
    if (!in.view.empty()) return in;
  }
  const bool is_bf16 = is_numpy_bf16(object);
  const nb::object bits = is_bf16 ? nb::object(object.attr("view")("uint16")) : nb::borrow(object);
  if (is_torch(object) && nb::cast<bool>(object.attr("requires_grad"))) refuse_import(object, argument, false);
  in.array = import <nb::ndarray<nb::ro>>(bits, argument, false);
  in.view = view_of<ConstTensor>(in.array, argument, is_bf16);
  return in;
}

Input input(nb::handle object, const char* argument, int rank) {
  Input in = input(object, argument);
  if (!in.view.empty() && in.view.rank != rank) {
    refuse(argument, "has " + std::to_string(in.view.rank) + " axes, " + std::to_string(rank) + " are needed");
  }
  return in;
}

Output output(nb::handle object, const char* argument) {
  Output out;
  if (object.is_none()) return out;
  if (is_plain_numpy(object)) {
    out.view = view_of_numpy<Tensor>(object, true);
    out.owner = nb::borrow(object);
    if (!out.view.empty()) return out;
  }
  const bool is_bf16 = is_numpy_bf16(object);
  const nb::object bits = is_bf16 ? nb::object(object.attr("view")("uint16")) : nb::borrow(object);
  if (is_torch(object) && nb::cast<bool>(object.attr("requires_grad"))) refuse_import(object, argument, true);
  const auto array = import <nb::ndarray<>>(bits, argument, true);
  out.view = view_of<Tensor>(array, argument, is_bf16);
  out.array = nb::ndarray<nb::ro>(array);
  return out;
}

std::vector<std::int64_t> integers(nb::handle object, const char* argument) {
  std::int64_t one = 0;
  if (nb::try_cast(object, one, true)) return {one};
  PyErr_Clear();
  std::vector<std::int64_t> all;
  if (PySequence_Check(object.ptr()) && !nb::hasattr(object, "__dlpack__")) {
    for (nb::handle item : nb::iter(object)) {
      if (!nb::try_cast(item, one, true)) {
        PyErr_Clear();
        refuse(argument, "holds what is no 64-bit integer", {.row = static_cast<std::int64_t>(all.size())});
      }
      all.push_back(one);
    }
    return all;
  }
  const Input in = input(object, argument);
  if (in.view.empty()) refuse(argument, "integers are needed");
  if (in.view.rank > 1 || is_float(in.view.dtype)) refuse(argument, "one axis of int32 or int64 is needed");
  for (std::int64_t i = 0; i < in.view.shape[0]; ++i) {
    if (in.view.dtype == DType::kI64) {
      std::memcpy(&one, in.view.at(i), sizeof one);
    } else {
      std::int32_t narrow = 0;
      std::memcpy(&narrow, in.view.at(i), sizeof narrow);
      one = narrow;
    }
    all.push_back(one);
  }
  return all;
}

std::vector<float> floats(nb::handle object, const char* argument) {
  std::vector<float> all;
  if (object.is_none()) return all;
  nb::object array = nb::borrow(object);
  if (PySequence_Check(object.ptr()) && !nb::hasattr(object, "__dlpack__")) {
    array = nb::module_::import_("numpy").attr("asarray")(object, "float32");
  } else if (is_torch(object)) {
    array = object.attr("detach")().attr("float")();  // bf16 and f16 widen exactly
  } else if (is_numpy(object) && nb::cast<std::int64_t>(object.attr("itemsize")) < 4) {
    array = object.attr("astype")("float32");
  }
  const Input in = input(array, argument, 1);
  if (in.view.dtype != DType::kF32) refuse(argument, "float32 is needed");
  all.resize(static_cast<std::size_t>(in.view.shape[0]));
  for (std::size_t i = 0; i < all.size(); ++i)
    std::memcpy(&all[i], in.view.at(static_cast<std::int64_t>(i)), sizeof(float));
  return all;
}

std::vector<Coordinates> coordinates(nb::handle object, const char* argument) {
  std::vector<Coordinates> all;
  if (object.is_none()) return all;
  const Input in = input(object, argument, 2);
  if (in.view.shape[1] != 3 || is_float(in.view.dtype)) refuse(argument, "[T, 3] of int32 or int64 is needed");
  all.resize(static_cast<std::size_t>(in.view.shape[0]));
  for (std::int64_t token = 0; token < in.view.shape[0]; ++token) {
    for (std::int64_t axis = 0; axis < 3; ++axis) {
      std::int64_t wide = 0;
      std::int32_t narrow = 0;
      std::memcpy(in.view.dtype == DType::kI64 ? static_cast<void*>(&wide) : &narrow, in.view.at(token, axis),
                  static_cast<std::size_t>(dtype_bytes(in.view.dtype)));
      if (in.view.dtype == DType::kI32) wide = narrow;
      if (wide < 0 || wide >= (std::int64_t{1} << 31))
        refuse(argument, "a coordinate outside 0..2^31-1", {token, axis});
      all[static_cast<std::size_t>(token)][static_cast<std::size_t>(axis)] = static_cast<std::int32_t>(wide);
    }
  }
  return all;
}

void check_shape(const ConstTensor& view, const char* argument, std::initializer_list<std::int64_t> shape) {
  std::string needed = "[";
  bool fits = view.rank == static_cast<int>(shape.size());
  std::size_t axis = 0;
  for (const std::int64_t extent : shape) {
    fits = fits && view.shape[axis] == extent;
    needed += (axis == 0 ? "" : ", ") + std::to_string(extent);
    ++axis;
  }
  if (fits) return;
  std::string has = "[";
  for (int i = 0; i < view.rank; ++i)
    has += (i == 0 ? "" : ", ") + std::to_string(view.shape[static_cast<std::size_t>(i)]);
  refuse(argument, "its shape is " + has + "], " + needed + "] is needed");
}

}  // namespace seriatim::python
