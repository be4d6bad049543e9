// Paths as Python gives them, and how a file is restored.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "errors.hpp"
#include "seriatim/cache.hpp"

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

// Raises  InvalidArgument: none of copy, map and map_verified.
inline RestoreMode restore_mode_of(const std::string& mode) {
  if (mode == "map") return RestoreMode::kMap;
  if (mode == "map_verified") return RestoreMode::kMapVerified;
  if (mode != "copy") refuse("mode", "'" + mode + "' is none of copy, map and map_verified");
  return RestoreMode::kCopy;
}

}  // namespace seriatim::python
