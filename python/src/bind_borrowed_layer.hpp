#pragma once

#include <nanobind/nanobind.h>

namespace seriatim::python {

// Adds Threads, BorrowedLayer and check_finite to `module`.
void bind_borrowed_layer(nanobind::module_& module);

}  // namespace seriatim::python
