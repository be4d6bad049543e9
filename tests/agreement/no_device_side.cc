#include "agreement/device_side.hpp"

namespace seriatim::agreement {

std::vector<std::int64_t> device_work_groups() { return {}; }

std::string device_product() { return {}; }

Result<std::unique_ptr<DeviceSide>> make_device_side(std::int64_t, const Problem&) {
  return Status::error(Code::kUnsupported, "device", "device: this build has no device backend");
}

}  // namespace seriatim::agreement
