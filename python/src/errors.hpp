// Status -> exception: the one place where an error value becomes a Python exception.
#pragma once

#include <string>

#include "seriatim/status.hpp"

namespace seriatim::python {

// Raises the exception of seriatim.errors that the status's code names. Needs the interpreter's lock.
[[noreturn]] void raise(const Status& status);

inline void check(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T value(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

// An InvalidArgument of the binding's own.
[[noreturn]] void refuse(const char* argument, const std::string& message, Place place = {});

}  // namespace seriatim::python
