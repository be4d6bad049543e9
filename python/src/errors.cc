#include "errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace seriatim::python {

namespace {

// A message may hold a file's name, which need not be UTF-8.
nb::object text_of(std::string_view message) {
  return nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "backslashreplace"));
}

}  // namespace

void raise(const Status& status) {
  std::string argument(status.argument());
  if (argument == "output") argument = "out";  // the name that Python's callers know it by
  const std::string_view message(status.message().empty() ? code_name(status.code()) : status.message());
  const nb::object error = nb::module_::import_("seriatim.errors")
                               .attr("make")(static_cast<int>(status.code()), text_of(message), argument,
                                             status.place().row, status.place().index, status.place().ask);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void refuse(const char* argument, const std::string& message, Place place) {
  const std::string prefix = std::string(argument) + ": ";
  raise(Status::error(Code::kInvalidArgument, argument, prefix + message, place));
}

}  // namespace seriatim::python
