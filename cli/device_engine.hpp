// A device as the engine of a replay. Without a device backend there is none.
#pragma once

#include <string>

#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim::cli {

// Takes   a device's name
// Errors  those of Device::open; Unsupported: this build has no device backend.
Result<Engine> device_engine(const std::string& name);

}  // namespace seriatim::cli
