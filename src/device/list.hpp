// The devices of all platforms, in the order in which they are numbered.
#pragma once

#include <vector>

#include "device/opencl_calls.hpp"
#include "seriatim/device.hpp"

namespace seriatim::device {

struct Listed {
  cl_device_id id = nullptr;
  DeviceInfo info;
};

// Errors  Io, OutOfMemory. No device is an empty list.
Result<std::vector<Listed>> find_devices(const OpenClCalls& calls);

}  // namespace seriatim::device
