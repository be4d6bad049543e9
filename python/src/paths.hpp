// Paths as Python gives them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace seriatim::python {

// The bytes of a str, bytes or os.PathLike, as Python's own open() takes them: any name that os.listdir gives.
// Raises  ValueError: a NUL in it. TypeError: no path.
inline std::string path_of(nanobind::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw nanobind::python_error();
  const nanobind::object held = nanobind::steal(bytes);
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) throw nanobind::python_error();
  return std::string(data, static_cast<std::size_t>(size));
}

}  // namespace seriatim::python
