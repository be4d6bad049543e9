#include <algorithm>

#include "base/format.hpp"
#include "devices.hpp"
#include "seriatim/device.hpp"

namespace seriatim::capi {
namespace {

template <std::size_t N>
void copy_cut(char (&to)[N], std::string_view from) {
  std::copy_n(from.data(), std::min(N - 1, from.size()), to);
}

}  // namespace

Result<std::int64_t> count_devices() {
  const auto found = list_devices();
  if (!found.ok()) return found.status();
  return static_cast<std::int64_t>(found->size());
}

Status describe_device(std::int64_t index, seriatim_device_info& told) {
  const auto found = list_devices();
  if (!found.ok()) return found.status();
  if (index < 0 || index >= static_cast<std::int64_t>(found->size()))
    return Status::error(Code::kNotFound, "index", formatted("index: {} of {} devices", index, found->size()));
  const DeviceInfo& device = (*found)[static_cast<std::size_t>(index)];
  copy_cut(told.name, device.name);
  copy_cut(told.product, device.product);
  copy_cut(told.driver, device.driver);
  copy_cut(told.lacks, device.lacks());
  told.memory_bytes = device.memory_bytes;
  told.largest_buffer_bytes = device.largest_buffer_bytes;
  return {};
}

Result<Engine> engine_on(std::string_view device, std::int32_t work_group) {
  DeviceOptions options;
  options.work_group = work_group;
  auto opened = Device::open(device, options);
  if (!opened.ok()) return opened.status();
  return Engine::on(*std::move(opened));
}

}  // namespace seriatim::capi
