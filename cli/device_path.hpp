// A device as the path of a replay. Without a device backend there is none.
#pragma once

#include <memory>
#include <string>

#include "seriatim/replay.hpp"
#include "seriatim/status.hpp"

namespace seriatim::cli {

// Takes   a device's name, and the capture that will be replayed
// Errors  those of Device::open and of taking its memory; Unsupported: this build has no device backend.
Result<std::unique_ptr<ReplayPath>> device_path(const std::string& name, const Capture& capture);

}  // namespace seriatim::cli
