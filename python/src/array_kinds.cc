#include "array_kinds.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <exception>
#include <string>

#include "errors.hpp"
#include "torch_tensors.hpp"

namespace seriatim::python {

namespace {

// What is looked up by name once and then kept until the process ends: a module's types and functions do not change.
struct Numpy {
  nb::object array_type, empty;
  std::array<nb::object, 3> plain_subclasses;  // those that add methods and no meaning; none where NumPy has it no more
  std::array<nb::object, 5> dtypes;            // in the order of DType, none for bf16

  Numpy() {
    const nb::object numpy = nb::module_::import_("numpy");
    array_type = numpy.attr("ndarray");
    empty = numpy.attr("empty");
    const char* const subclasses[] = {"memmap", "matrix", "recarray"};
    for (std::size_t i = 0; i < plain_subclasses.size(); ++i)
      plain_subclasses[i] = nb::getattr(numpy, subclasses[i], nb::none());
    const char* const names[] = {"float32", nullptr, "float16", "int32", "int64"};
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      if (names[i] != nullptr) dtypes[i] = numpy.attr("dtype")(names[i]);
    }
  }
};

const Numpy& numpy() {
  static std::atomic<const Numpy*> known{nullptr};
  if (const Numpy* const found = known.load()) return *found;
  const Numpy* const made = new Numpy;  // as torch(): two threads may both look
  known.store(made);
  return *made;
}

nb::object shape_tuple(std::initializer_list<std::int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  Py_ssize_t axis = 0;
  for (const std::int64_t extent : shape) PyTuple_SetItem(tuple.ptr(), axis++, PyLong_FromLongLong(extent));
  return tuple;
}

}  // namespace

bool is_numpy(nb::handle object) { return nb::isinstance(object, numpy().array_type); }

bool is_plain_numpy(nb::handle object) {
  if (object.type().is(numpy().array_type)) return true;
  for (const nb::object& subclass : numpy().plain_subclasses) {
    if (object.type().is(subclass)) return true;
  }
  return false;
}

bool is_torch(nb::handle object) {
  if (object.type().is(numpy().array_type)) return false;
  const Torch* const known = torch();
  return known != nullptr && nb::isinstance(object, known->tensor_type);
}

bool is_numpy_bf16(nb::handle object) {
  if (!is_numpy(object)) return false;
  // NumPy works out a name in Python; the kind, a letter, says "no" first.
  const nb::object dtype = object.attr("dtype");
  return nb::cast<std::string>(dtype.attr("kind")) == "V" &&
         nb::cast<std::string>(nb::str(dtype.attr("name"))) == "bfloat16";
}

nb::object empty_like_kind(nb::handle like, DType dtype, std::initializer_list<std::int64_t> shape) {
  const auto which = static_cast<std::size_t>(dtype);
  const nb::object extents = shape_tuple(shape);
  // A default device, or a mode that changes it, is not the caller's word on this tensor.
  if (is_torch(like))
    return torch()->empty(extents, nb::arg("dtype") = torch()->dtypes[which], nb::arg("device") = "cpu");
  if (dtype != DType::kBf16) return numpy().empty(extents, numpy().dtypes[which]);
  if (is_numpy_bf16(like)) return numpy().empty(extents, like.attr("dtype"));
  nb::object types;
  try {
    types = nb::module_::import_("ml_dtypes");
  } catch (nb::python_error&) {
    raise(Status::error(Code::kUnsupported, "dtype", "NumPy has bfloat16 only with the package ml_dtypes"));
  }
  return numpy().empty(extents, types.attr("bfloat16"));
}

DType dtype_of(nb::handle object, const char* argument, DType otherwise) {
  if (object.is_none()) return otherwise;
  std::string name;
  try {
    // str() of a torch dtype is "torch.float32"; a NumPy scalar type or dtype becomes a name through numpy.dtype.
    name = nb::cast<std::string>(nb::str(object));
    const bool names_one = nb::isinstance<nb::type_object>(object) || nb::hasattr(object, "itemsize");
    if (names_one && name.rfind("torch.", 0) != 0)
      name = nb::cast<std::string>(nb::module_::import_("numpy").attr("dtype")(object).attr("name"));
  } catch (const std::exception&) {  // whatever it is that has no name
    refuse(argument, "no dtype; pass f32, bf16 or f16");
  }
  if (name.rfind("torch.", 0) == 0) name = name.substr(6);
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBf16;
  if (name == "f16" || name == "float16") return DType::kF16;
  refuse(argument, "'" + name + "' is none of f32, bf16 and f16");
}

}  // namespace seriatim::python
