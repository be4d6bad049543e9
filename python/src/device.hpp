// Devices by name: the only part of the module that a build without a backend lacks.
#pragma once

#include <string>
#include <vector>

#include "seriatim/device.hpp"
#include "seriatim/step.hpp"

namespace seriatim::python {

// Errors  those of Device::open; Unsupported: a build without devices.
Result<Engine> engine_on(const std::string& name);
Result<std::vector<DeviceInfo>> devices();
std::string lacks(const DeviceInfo& info);

}  // namespace seriatim::python
