#include "errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace seriatim::python {

void raise(const Status& status) {
  std::string argument(status.argument());
  if (argument == "output") argument = "out";  // the name that Python's callers know it by
  const std::string message(status.message().empty() ? code_name(status.code()) : status.message());
  const nb::object error =
      nb::module_::import_("seriatim._errors")
          .attr("make")(static_cast<int>(status.code()), message, argument, status.place().row, status.place().index);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

void refuse(const char* argument, const std::string& message, Place place) {
  raise(Status::error(Code::kInvalidArgument, argument, message, place));
}

}  // namespace seriatim::python
