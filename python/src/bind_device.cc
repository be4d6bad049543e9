// Binds DeviceInfo and devices().
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "device.hpp"
#include "docs.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

namespace nb = nanobind;

namespace seriatim::python {

void bind_device(nb::module_& module) {
  nb::class_<DeviceInfo>(module, "DeviceInfo", docs::kDeviceInfo)
      .def_ro("name", &DeviceInfo::name, "As Engine(device=...) takes it.")
      .def_ro("product", &DeviceInfo::product, "What its driver calls it.")
      .def_ro("driver", &DeviceInfo::driver)
      .def_ro("memory_bytes", &DeviceInfo::memory_bytes)
      .def_prop_ro("lacks", &lacks, "Empty if it keeps the library's bits; else what it does not promise.")
      .def("__repr__", [](const DeviceInfo& self) {
        return "DeviceInfo(name='" + self.name + "', product='" + self.product + "')";
      });
  module.def(
      "devices",
      [] {
        auto found = [] {
          const Unlocked unlocked;
          return devices();
        }();
        return value(std::move(found));
      },
      docs::kDevices);
}

}  // namespace seriatim::python
