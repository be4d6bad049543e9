// seriatim devices, and the device behind seriatim run --device.
#include "seriatim/device.hpp"

#include <utility>

#include "commands.hpp"
#include "device_engine.hpp"
#include "file/bytes.hpp"
#include "print.hpp"

namespace seriatim::cli {

Result<Engine> device_engine(const std::string& name) {
  auto device = Device::open(name);
  if (!device.ok()) return device.status();
  return Engine::on(*std::move(device));
}

int devices() {
  const auto found = list_devices();
  if (!found.ok()) return refuse(found.status());
  if (found->empty()) print("no device (OpenCL and CUDA were asked; pocl-opencl-icd has a driver for any CPU)\n");
  for (const DeviceInfo& one : *found) {
    const auto line = [](std::string_view name, const std::string& value) { print("  {:<26}{}\n", name, value); };
    const auto promise = [&](std::string_view name, bool kept) { line(name, kept ? "yes" : "no"); };
    print("{}  {}\n", one.name, file::printable(one.product));
    line("driver", file::printable(one.driver));
    line("memory", formatted("{} MiB, {} MiB in one piece", one.memory_bytes >> 20, one.largest_buffer_bytes >> 20));
    promise("fused multiply-add", one.fma);
    promise("division, square root", one.division);
    promise("subnormals", one.subnormals);
    promise("rounding to nearest", one.rounds);
    promise("double precision", one.doubles);
    const std::string lacks = one.lacks();
    line("the library's bits", lacks.empty() ? "yes" : "refused: it does not promise " + lacks);
  }
  return kAgrees;
}

}  // namespace seriatim::cli
