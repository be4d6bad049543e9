#include "device/device.hpp"

#include <algorithm>
#include <cstring>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "device/backends.hpp"
#include "device/kernel_text.hpp"

namespace seriatim {
namespace device {
namespace {

constexpr std::int64_t kMostLanes = 1024;
constexpr std::int64_t kUsualLanes = 128;  // as many as a split has entries

Status not_found(std::string_view name, const std::vector<Listed>& found) {
  std::string names;
  for (const Listed& one : found)
    names += formatted("{}{} ({})", names.empty() ? "" : ", ", one.info.name, one.info.product);
  return Status::error(Code::kNotFound, "device",
                       formatted("device: there is no '{}'; there is {}", name, names.empty() ? "none" : names));
}

std::string_view backend_of(const Listed& one) {
  return std::string_view(one.info.name).substr(0, one.info.name.find(':'));
}

Result<const Listed*> choose(const std::vector<Listed>& found, std::string_view name, bool accept_other_bits) {
  for (const Listed& one : found) {
    if (name == backend_of(one) && (one.info.lacks().empty() || accept_other_bits)) return &one;
    if (one.info.name != name) continue;
    if (const std::string lacks = one.info.lacks(); !lacks.empty() && !accept_other_bits) {
      return Status::error(
          Code::kUnsupported, "device",
          formatted("device: {} ({}) does not promise {}: its bits could be others", name, one.info.product, lacks));
    }
    return &one;
  }
  return not_found(name, found);
}

}  // namespace

Result<std::shared_ptr<Device>> open_one(const std::vector<Listed>& found, std::string_view name,
                                         const DeviceOptions& options, const char* kernel_text) {
  if (options.work_group < 0 || options.work_group > kMostLanes) {
    return Status::error(Code::kInvalidArgument, "work_group",
                         formatted("work_group: {} is not in 0..{}", options.work_group, kMostLanes));
  }
  const auto chosen = choose(found, name, options.accept_other_bits);
  if (!chosen.ok()) return chosen.status();
  auto driver = (*chosen)->open();
  if (!driver.ok()) return driver.status();
  auto impl = std::make_unique<Device::Impl>();
  impl->driver = *std::move(driver);
  impl->info = (*chosen)->info;
  impl->work_group = options.work_group == 0 ? kUsualLanes : options.work_group;
  impl->kernel_text = kernel_text == nullptr ? kKernelText : kernel_text;
  return std::make_shared<Device>(std::move(impl));
}

}  // namespace device

std::string DeviceInfo::lacks() const {
  std::string all;
  const auto add = [&all](bool promised, std::string_view what) {
    if (promised) return;
    if (!all.empty()) all += ", ";
    all += what;
  };
  add(doubles, "double precision");
  add(fma, "a correctly rounded fused multiply-add");
  add(division, "correctly rounded division and square root");
  add(subnormals, "subnormals");
  add(rounds, "rounding to nearest");
  return all;
}

Result<std::vector<DeviceInfo>> list_devices() {
  DefaultFloatEnvironment environment;
  const device::Found found = device::find_all();
  if (!found.asked) return found.fault;
  std::vector<DeviceInfo> infos;
  for (const device::Listed& one : found.devices) infos.push_back(one.info);
  return infos;
}

Result<std::shared_ptr<Device>> Device::open(std::string_view name, const DeviceOptions& options) {
  DefaultFloatEnvironment environment;
  const device::Found found = device::find_all();
  if (!found.asked) return found.fault;
  auto opened = device::open_one(found.devices, name, options);
  if (opened.ok() || opened.status().code() != Code::kNotFound || found.fault.ok()) return opened;
  return device::both(Code::kNotFound, opened.status(), found.fault);
}

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;
const DeviceInfo& Device::info() const { return impl_->info; }

Result<device::Buffer> Device::Impl::buffer(std::int64_t bytes) {
  const std::int64_t taken = std::max<std::int64_t>(bytes, 4);  // no backend has empty ones
  const auto memory = driver->take(taken);
  if (!memory.ok()) return memory.status();
  return device::Buffer(*driver, *memory, taken);
}

Result<std::byte*> Device::Impl::host_bytes(std::int64_t bytes) {
  const std::int64_t taken = std::max<std::int64_t>(bytes, 4);
  auto memory = driver->take_host(taken);
  if (memory.ok()) std::memset(*memory, 0, static_cast<std::size_t>(taken));
  return memory;
}

Result<const device::Program*> Device::Impl::program(const Geometry& geometry) {
  DefaultFloatEnvironment environment;
  for (const auto& built : programs) {
    if (built->kv_dtype == geometry.kv_dtype() && built->index_dtype == geometry.index_dtype()) return built.get();
  }
  const auto kernels = driver->build({kernel_text, work_group, geometry.kv_dtype(), geometry.index_dtype()});
  if (!kernels.ok()) return kernels.status();
  programs.push_back(
      std::make_unique<device::Program>(device::Program{geometry.kv_dtype(), geometry.index_dtype(), *kernels}));
  return programs.back().get();
}

Status Device::Impl::write(const device::Buffer& to, std::int64_t offset, const void* from, std::int64_t bytes) {
  return bytes == 0 ? Status() : driver->write(to.get(), offset, from, bytes);
}

Status Device::Impl::read(const device::Buffer& from, void* to, std::int64_t bytes) {
  return bytes == 0 ? Status() : driver->read(from.get(), to, bytes);
}

Status Device::Impl::finish() {
  DefaultFloatEnvironment environment;
  Status status = driver->finish();
  if (!status.ok()) ++epoch;
  return status;
}

}  // namespace seriatim
