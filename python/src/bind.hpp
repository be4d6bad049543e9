// The parts of the extension module, in the order of a token's way.
#pragma once

#include <nanobind/nanobind.h>

namespace seriatim::python {

void bind_engine(nanobind::module_& module);
void bind_device(nanobind::module_& module);
void bind_geometry(nanobind::module_& module);
void bind_score(nanobind::module_& module);
void bind_rule(nanobind::module_& module);
void bind_check(nanobind::module_& module);
void bind_layer(nanobind::module_& module);
void bind_transaction(nanobind::module_& module);
void bind_cache(nanobind::module_& module);
void bind_cache_file(nanobind::module_& module);
void bind_arrays_attend(nanobind::module_& module);
void bind_borrow(nanobind::module_& module);
void bind_shard(nanobind::module_& module);

}  // namespace seriatim::python
