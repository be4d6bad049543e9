#include "array_kinds.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <atomic>
#include <string>

#include "errors.hpp"

namespace seriatim::python {

namespace {

// In the order of DType.
constexpr std::array<const char*, 5> kNames{"float32", "bfloat16", "float16", "int32", "int64"};

// What is looked up by name once and then kept until the process ends: a module's types and functions do not change.
struct Numpy {
  nb::object array_type, empty;
  std::array<nb::object, 5> dtypes;  // none for bf16

  Numpy() {
    const nb::object numpy = nb::module_::import_("numpy");
    array_type = numpy.attr("ndarray");
    empty = numpy.attr("empty");
    for (std::size_t i = 0; i < kNames.size(); ++i) {
      if (i != static_cast<std::size_t>(DType::kBf16)) dtypes[i] = numpy.attr("dtype")(kNames[i]);
    }
  }
};

struct Torch {
  nb::object tensor_type, empty;
  std::array<nb::object, 5> dtypes;

  explicit Torch(nb::handle torch) {
    tensor_type = torch.attr("Tensor");
    empty = torch.attr("empty");
    for (std::size_t i = 0; i < kNames.size(); ++i) dtypes[i] = torch.attr(kNames[i]);
  }
};

// A module that the program has imported, else None: what no module was loaded for is not its array.
nb::object module_or_none(const char* name) {
  PyObject* module = PyImport_GetModule(nb::str(name).ptr());
  if (module == nullptr) PyErr_Clear();
  return module == nullptr ? nb::none() : nb::steal(module);
}

// Two threads may both look; the later's stays, the other's is a few handles. A lock here would be held while an import
// lets go of the interpreter's.
template <typename Known>
const Known& keep(std::atomic<const Known*>& place, const Known* made) {
  place.store(made);
  return *made;
}

const Numpy& numpy() {
  static std::atomic<const Numpy*> known{nullptr};
  if (const Numpy* const found = known.load()) return *found;
  return keep(known, new Numpy);
}

// Null as long as nobody has imported torch.
const Torch* torch() {
  static std::atomic<const Torch*> known{nullptr};
  if (const Torch* const found = known.load()) return found;
  const nb::object module = module_or_none("torch");
  if (module.is_none() || !nb::hasattr(module, "Tensor")) return nullptr;
  return &keep(known, new Torch(module));
}

nb::object shape_tuple(std::initializer_list<std::int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  Py_ssize_t axis = 0;
  for (const std::int64_t extent : shape) PyTuple_SetItem(tuple.ptr(), axis++, PyLong_FromLongLong(extent));
  return tuple;
}

}  // namespace

bool is_numpy(nb::handle object) { return nb::isinstance(object, numpy().array_type); }

bool is_plain_numpy(nb::handle object) { return object.type().is(numpy().array_type); }

bool is_torch(nb::handle object) {
  if (is_plain_numpy(object)) return false;
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
  if (is_torch(like)) return torch()->empty(extents, nb::arg("dtype") = torch()->dtypes[which]);
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
  // str() of a torch dtype is "torch.float32"; a NumPy scalar type or dtype becomes a name through numpy.dtype.
  std::string name = nb::cast<std::string>(nb::str(object));
  if (nb::isinstance<nb::type_object>(object) || nb::hasattr(object, "itemsize")) {
    if (name.rfind("torch.", 0) != 0) {
      name = nb::cast<std::string>(nb::str(nb::module_::import_("numpy").attr("dtype")(object).attr("name")));
    }
  }
  if (name.rfind("torch.", 0) == 0) name = name.substr(6);
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBf16;
  if (name == "f16" || name == "float16") return DType::kF16;
  refuse(argument, "'" + name + "' is none of f32, bf16 and f16");
}

}  // namespace seriatim::python
