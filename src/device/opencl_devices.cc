// What OpenCL's devices are and promise.

#include <string>
#include <utility>

#include "base/format.hpp"
#include "device/opencl_calls.hpp"

namespace seriatim::device {
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
  info.name = formatted("opencl:{}", number);
  info.product = text_of(calls, id, CL_DEVICE_NAME);
  info.driver = formatted("{}, {}", text_of(calls, id, CL_DEVICE_VERSION), text_of(calls, id, CL_DRIVER_VERSION));
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
    if (Status s = check(calls.clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr),
                         "listing devices");
        !s.ok())
      return s;
    for (const cl_device_id id : devices) {
      DeviceInfo info = describe(calls, id, found.size());
      const bool division = info.division;
      found.push_back({std::move(info), [calls, id, division] { return open_opencl(calls, id, division); }});
    }
  }
  return found;
}

}  // namespace seriatim::device
