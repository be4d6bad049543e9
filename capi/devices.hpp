// What the C ABI asks of devices, in builds with them (with_devices.cc) and without (no_devices.cc).
#pragma once

#include <cstdint>
#include <string_view>

#include "seriatim.h"
#include "seriatim/status.hpp"
#include "seriatim/step.hpp"

namespace seriatim::capi {

// Errors of all  Unsupported: a build without devices, or no backend's loader or driver. Io.
Result<std::int64_t> count_devices();
// Takes   told: zeros. Errors  NotFound: index.
Status describe_device(std::int64_t index, seriatim_device_info& told);
// Errors  as Device::open and Engine::on.
Result<Engine> engine_on(std::string_view device, std::int32_t work_group);

}  // namespace seriatim::capi
