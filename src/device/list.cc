#include <fmt/format.h>

#include "device/device.hpp"
#include "device/list.hpp"

namespace seriatim {
namespace device {
namespace {

// A text of the driver's; empty if it refuses one.
std::string text_of(const OpenClCalls& calls, cl_device_id id, cl_device_info what) {
  std::size_t bytes = 0;
  if (calls.clGetDeviceInfo(id, what, 0, nullptr, &bytes) != CL_SUCCESS || bytes == 0) return {};
  std::string text(bytes, '\0');
  if (calls.clGetDeviceInfo(id, what, bytes, text.data(), nullptr) != CL_SUCCESS) return {};
  text.resize(bytes - 1);  // the terminating zero
  return text;
}

// A number of the driver's; 0 if it refuses one, which promises nothing.
template <typename T>
T number_of(const OpenClCalls& calls, cl_device_id id, cl_device_info what) {
  T value{};
  return calls.clGetDeviceInfo(id, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : T{};
}

DeviceInfo describe(const OpenClCalls& calls, cl_device_id id, std::size_t number) {
  DeviceInfo info;
  info.name = fmt::format("opencl:{}", number);
  info.product = text_of(calls, id, CL_DEVICE_NAME);
  info.driver = fmt::format("{}, {}", text_of(calls, id, CL_DEVICE_VERSION), text_of(calls, id, CL_DRIVER_VERSION));
  const auto single = number_of<cl_device_fp_config>(calls, id, CL_DEVICE_SINGLE_FP_CONFIG);
  info.fma = (single & CL_FP_FMA) != 0;
  info.division = (single & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  info.subnormals = (single & CL_FP_DENORM) != 0;
  info.rounds = (single & CL_FP_ROUND_TO_NEAREST) != 0;
  info.doubles = number_of<cl_device_fp_config>(calls, id, CL_DEVICE_DOUBLE_FP_CONFIG) != 0;
  info.memory_bytes = static_cast<std::int64_t>(number_of<cl_ulong>(calls, id, CL_DEVICE_GLOBAL_MEM_SIZE));
  info.largest_buffer_bytes = static_cast<std::int64_t>(number_of<cl_ulong>(calls, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  return info;
}

}  // namespace

Result<std::vector<Listed>> find_devices(const OpenClCalls& calls) {
  cl_uint platforms = 0;
  constexpr cl_int kNoPlatform = -1001;  // CL_PLATFORM_NOT_FOUND_KHR: a loader without a driver
  const cl_int code = calls.clGetPlatformIDs(0, nullptr, &platforms);
  if (code == kNoPlatform || (code == CL_SUCCESS && platforms == 0)) return std::vector<Listed>{};
  if (Status s = check(code, "listing platforms"); !s.ok()) return s;
  std::vector<cl_platform_id> ids(platforms);
  if (Status s = check(calls.clGetPlatformIDs(platforms, ids.data(), nullptr), "listing platforms"); !s.ok()) return s;
  std::vector<Listed> found;
  for (const cl_platform_id platform : ids) {
    cl_uint count = 0;
    if (calls.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS || count == 0) continue;
    std::vector<cl_device_id> devices(count);
    if (Status s = check(calls.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "listing devices"); !s.ok()) return s;
    for (const cl_device_id id : devices) found.push_back({id, describe(calls, id, found.size())});
  }
  return found;
}

Result<std::vector<DeviceInfo>> list_devices_by(const OpenClCalls& calls) {
  const auto found = find_devices(calls);
  if (!found.ok()) return found.status();
  std::vector<DeviceInfo> infos;
  for (const Listed& one : *found) infos.push_back(one.info);
  return infos;
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
  const auto calls = device::installed_calls();
  if (!calls.ok()) return calls.status();
  return device::list_devices_by(**calls);
}

}  // namespace seriatim
