// What the package says of devices when it was built without a backend.
#include "device.hpp"

namespace seriatim::python {
namespace {

Status absent() {
  return Status::error(Code::kUnsupported, "device", "device: this build has no device backend (SERIATIM_DEVICE)");
}

}  // namespace

Result<std::unique_ptr<CacheDevice>> make_cache_device(const std::string&, const Geometry&, const CacheOptions&) {
  return absent();
}

Result<std::vector<DeviceInfo>> devices() { return absent(); }
std::string lacks(const DeviceInfo&) { return {}; }

}  // namespace seriatim::python
