// plan and attend as Python calls them: of one layer, or of many in one call.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "engine.hpp"
#include "handles.hpp"

namespace seriatim::python {

namespace nb = nanobind;

nb::object plan_layer(const LayerHandle& self, nb::handle queries, nb::handle positions, nb::handle head_weights,
                      const std::string& nan, const std::shared_ptr<EngineHandle>& engine, nb::handle out);
nb::object attend_layer(const LayerHandle& self, nb::handle queries, nb::handle positions, nb::handle rows,
                        nb::handle sinks, nb::handle dtype, const std::shared_ptr<EngineHandle>& engine, nb::handle out,
                        nb::handle lse, bool return_lse);

// Engine.plan and Engine.attend.
void bind_steps(nb::class_<EngineHandle>& engine);

}  // namespace seriatim::python
