#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

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

// A subclass may mean more than its elements: a mask, a unit, labels.
void refuse_foreign_subclass(nb::handle object, const char* argument) {
  if (!is_numpy(object) || is_plain_numpy(object)) return;
  refuse(argument, "a " + kind_name(object) +
                       ", whose meaning beyond its elements (a mask, a unit) would be dropped; pass a plain "
                       "numpy.ndarray");
}

// Only what speaks DLPack: other buffers may come without strides (NumPy's datetime64 does), which nanobind would read.
template <typename Array>
Array import(nb::handle object, const char* argument, bool writable) {
  Array array;
  if (!nb::hasattr(object.type(), "__dlpack__") || !nb::try_cast(object, array, false)) {
    PyErr_Clear();
    refuse_import(object, argument, writable);
  }
  return array;
}

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
    fits = buffer.shape[axis] <= 1 || (buffer.strides[axis] >= 0 && buffer.strides[axis] % buffer.itemsize == 0);
  }
  if (fits) {
    view.data = static_cast<decltype(view.data)>(buffer.buf);
    view.dtype = *dtype;
    view.rank = buffer.ndim;
    settle(view);
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
  bool has_elements = true;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) {
    view.shape[axis] = static_cast<std::int64_t>(array.shape(axis));
    has_elements = has_elements && view.shape[axis] > 0;
    if (view.shape[axis] <= 1) continue;
    if (array.stride(axis) < 0)
      refuse(argument, "axis " + std::to_string(axis) + " has a negative stride; copy it first");
    if (__builtin_mul_overflow(array.stride(axis), dtype_bytes(*dtype), &view.stride_bytes[axis]))
      refuse(argument, "axis " + std::to_string(axis) + " has a stride past 64 bits");
  }
  if (has_elements && view.data == nullptr) refuse(argument, "has extents and no memory for them");
  settle(view);
  return view;
}

// What input and output share. The view is empty only for None.
template <typename View, typename Array>
Held<View> held(nb::handle object, const char* argument, Gradient gradient) {
  constexpr bool kWritable = std::is_same_v<View, Tensor>;
  Held<View> out;
  if (object.is_none()) return out;
  if (is_plain_numpy(object)) out.view = view_of_numpy<View>(object, kWritable);
  if (is_torch(object)) out.view = torch_view<std::remove_pointer_t<decltype(View::data)>>(object, argument, gradient);
  out.owner = nb::borrow(object);
  if (!out.view.empty()) return out;
  refuse_foreign_subclass(object, argument);
  const bool is_bf16 = is_numpy_bf16(object);
  const nb::object bits = is_bf16 ? nb::object(object.attr("view")("uint16")) : nb::borrow(object);
  const auto array = import <Array>(bits, argument, kWritable);
  out.view = view_of<View>(array, argument, is_bf16);
  out.array = nb::ndarray<nb::ro>(array);
  return out;
}

}  // namespace

Input input(nb::handle object, const char* argument, Gradient gradient) {
  return held<ConstTensor, nb::ndarray<nb::ro>>(object, argument, gradient);
}

Input input(nb::handle object, const char* argument, int rank) {
  Input in = input(object, argument);
  if (!in.view.empty() && in.view.rank != rank) {
    refuse(argument, "has " + std::to_string(in.view.rank) + " axes, " + std::to_string(rank) + " are needed");
  }
  return in;
}

Output output(nb::handle object, const char* argument) {
  return held<Tensor, nb::ndarray<>>(object, argument, Gradient::kRefused);
}

Output given_output(nb::handle object, const char* argument) {
  Output out = output(object, argument);
  if (is_torch(object)) announce_write(object);
  return out;
}

namespace {

// Lists, tuples, ranges and their like. Iterating over anything else that can be indexed need not give its elements:
// over a data frame it gives the names of its columns.
bool is_sequence(nb::handle object) {
  if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) return true;
  return nb::isinstance(object, nb::module_::import_("collections.abc").attr("Sequence"));
}

}  // namespace

std::vector<std::int64_t> integers(nb::handle object, const char* argument) {
  std::int64_t one = 0;
  const bool is_array = is_numpy(object) || is_torch(object);
  if (!is_array && nb::try_cast(object, one, true)) return {one};
  PyErr_Clear();
  std::vector<std::int64_t> all;
  if (!is_array && is_sequence(object)) {
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
  if (!is_numpy(object) && !is_torch(object) && is_sequence(object)) {
    for (nb::handle item : nb::iter(object)) {
      const double one = PyFloat_AsDouble(item.ptr());
      if (one == -1.0 && PyErr_Occurred() != nullptr) {
        PyErr_Clear();
        refuse(argument, "holds what is no number", {.row = static_cast<std::int64_t>(all.size())});
      }
      all.push_back(static_cast<float>(one));
    }
    return all;
  }
  Input in = input(object, argument, Gradient::kIgnored);
  if (in.view.dtype == DType::kBf16 || in.view.dtype == DType::kF16) {  // they widen exactly
    const nb::object wide =
        is_torch(object) ? object.attr("detach")().attr("float")() : object.attr("astype")("float32");
    in = input(wide, argument);
  }
  if (in.view.rank != 1) refuse(argument, "has " + std::to_string(in.view.rank) + " axes, 1 is needed");
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
