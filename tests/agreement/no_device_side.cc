#include "agreement/device_side.hpp"

namespace seriatim::agreement {

std::vector<std::string> device_backends() { return {}; }

std::string device_products() { return {}; }

Result<std::unique_ptr<DeviceSide>> make_device_side(const DeviceWay&, const Problem&) {
  return Status::error(Code::kUnsupported, "device", "device: this build has no device backend");
}

}  // namespace seriatim::agreement
