#include "device.hpp"

#include <utility>

namespace seriatim::python {

Result<Engine> engine_on(const std::string& name) {
  auto device = Device::open(name);
  if (!device.ok()) return device.status();
  return Engine::on(*std::move(device));
}

Result<std::vector<DeviceInfo>> devices() { return list_devices(); }
std::string lacks(const DeviceInfo& info) { return info.lacks(); }

}  // namespace seriatim::python
