// What the package says of devices when it was built without a backend.
#include "device.hpp"

namespace seriatim::python {
namespace {

Status absent() {
  return Status::error(Code::kUnsupported, "device", "device: this build has no device backend (SERIATIM_DEVICE)");
}

}  // namespace

Result<Engine> engine_on(const std::string&) { return absent(); }
Result<std::vector<DeviceInfo>> devices() { return absent(); }
std::string lacks(const DeviceInfo&) { return {}; }

}  // namespace seriatim::python
