#include "device/device.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "device/kernel_text.hpp"
#include "device/list.hpp"

namespace seriatim {
namespace device {
namespace {

constexpr std::int64_t kMostLanes = 1024;
constexpr std::int64_t kUsualLanes = 128;  // as many as a split has entries

Status not_found(std::string_view name, const std::vector<Listed>& found) {
  std::string names;
  for (const Listed& one : found) names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", one.info.name, one.info.product);
  return Status::error(Code::kNotFound, "device",
                       fmt::format("device: there is no '{}'; there is {}", name, names.empty() ? "none" : names));
}

Result<Listed> choose(const std::vector<Listed>& found, std::string_view name, bool accept_other_bits) {
  for (const Listed& one : found) {
    if (name == "opencl" && (one.info.lacks().empty() || accept_other_bits)) return one;
    if (one.info.name != name) continue;
    if (const std::string lacks = one.info.lacks(); !lacks.empty() && !accept_other_bits) {
      return Status::error(Code::kUnsupported, "device",
                           fmt::format("device: {} ({}) does not promise {}: its bits could be others", name, one.info.product, lacks));
    }
    return one;
  }
  return not_found(name, found);
}

}  // namespace

Result<std::shared_ptr<Device>> open_by(const OpenClCalls& calls, std::string_view name, const DeviceOptions& options,
                                        const char* kernel_text) {
  if (options.work_group < 0 || options.work_group > kMostLanes) {
    return Status::error(Code::kInvalidArgument, "work_group", fmt::format("work_group: {} is not in 0..{}", options.work_group, kMostLanes));
  }
  const auto found = find_devices(calls);
  if (!found.ok()) return found.status();
  const auto chosen = choose(*found, name, options.accept_other_bits);
  if (!chosen.ok()) return chosen.status();
  auto impl = std::make_unique<Device::Impl>(calls);
  impl->info = chosen->info;
  impl->id = chosen->id;
  impl->work_group = options.work_group == 0 ? kUsualLanes : options.work_group;
  impl->kernel_text = kernel_text == nullptr ? kKernelText : kernel_text;
  cl_int code = CL_SUCCESS;
  impl->context = calls.clCreateContext(nullptr, 1, &chosen->id, nullptr, nullptr, &code);
  if (Status s = check(code, "making a context"); !s.ok()) return s;
  impl->queue = calls.clCreateCommandQueue(impl->context, chosen->id, 0, &code);
  if (Status s = check(code, "making a queue"); !s.ok()) return s;
  return std::make_shared<Device>(std::move(impl));
}

}  // namespace device

Result<std::shared_ptr<Device>> Device::open(std::string_view name, const DeviceOptions& options) {
  const auto calls = device::installed_calls();
  if (!calls.ok()) return calls.status();
  return device::open_by(**calls, name, options);
}

Device::Device(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Device::~Device() = default;
const DeviceInfo& Device::info() const { return impl_->info; }

Device::Impl::~Impl() {
  if (queue != nullptr) calls.clFinish(queue);
  for (const auto& built : programs) {
    for (const cl_kernel kernel : built->kernels) {
      if (kernel != nullptr) calls.clReleaseKernel(kernel);
    }
    if (built->program != nullptr) calls.clReleaseProgram(built->program);
  }
  if (queue != nullptr) calls.clReleaseCommandQueue(queue);
  if (context != nullptr) calls.clReleaseContext(context);
}

Result<device::Buffer> Device::Impl::buffer(std::int64_t bytes) {
  cl_int code = CL_SUCCESS;
  const std::int64_t taken = std::max<std::int64_t>(bytes, 4);  // OpenCL has no empty buffers
  const cl_mem memory = calls.clCreateBuffer(context, CL_MEM_READ_WRITE, static_cast<std::size_t>(taken), nullptr, &code);
  if (Status s = device::check(code, "taking memory"); !s.ok()) return s;
  return device::Buffer(calls, memory, taken);
}

Result<const device::Program*> Device::Impl::program(const Geometry& geometry) {
  for (const auto& built : programs) {
    if (built->kv_dtype == geometry.kv_dtype() && built->index_dtype == geometry.index_dtype()) return built.get();
  }
  auto built = std::make_unique<device::Program>();
  built->kv_dtype = geometry.kv_dtype();
  built->index_dtype = geometry.index_dtype();
  cl_int code = CL_SUCCESS;
  built->program = calls.clCreateProgramWithSource(context, 1, &kernel_text, nullptr, &code);
  if (Status s = device::check(code, "taking the kernels' text"); !s.ok()) return s;
  // Kept by the device from here on, which releases it also when it does not build.
  programs.push_back(std::move(built));
  device::Program& one = *programs.back();
  const auto drop = [this](Status status) {
    for (const cl_kernel kernel : programs.back()->kernels) {
      if (kernel != nullptr) calls.clReleaseKernel(kernel);
    }
    calls.clReleaseProgram(programs.back()->program);
    programs.pop_back();
    return status;
  };
  const std::string options =
      fmt::format("-cl-std=CL1.2{} -D WORK_GROUP={} -D KV_DTYPE={} -D INDEX_DTYPE={}", info.division ? " -cl-fp32-correctly-rounded-divide-sqrt" : "",
                  work_group, static_cast<int>(one.kv_dtype), static_cast<int>(one.index_dtype));
  if (calls.clBuildProgram(one.program, 1, &id, options.c_str(), nullptr, nullptr) != CL_SUCCESS) {
    std::string log(4096, '\0');
    calls.clGetProgramBuildInfo(one.program, id, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
    log.resize(std::min(log.find('\0'), log.size()));
    const std::size_t error = std::min(log.find("error:"), log.size());  // a message is short: from the first error on
    return drop(Status::error(Code::kUnsupported, "device", fmt::format("device: the kernels do not build: {}", error < log.size() ? log.substr(error) : log)));
  }
  for (std::size_t i = 0; i < one.kernels.size(); ++i) {
    one.kernels[i] = calls.clCreateKernel(one.program, device::kKernelNames[i], &code);
    if (Status s = device::check(code, "making a kernel"); !s.ok()) return drop(std::move(s));
  }
  return &one;
}

Status Device::Impl::write(const device::Buffer& to, std::int64_t offset, const void* from, std::int64_t bytes) {
  if (bytes == 0) return {};
  return device::check(calls.clEnqueueWriteBuffer(queue, to.get(), CL_FALSE, static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes), from, 0, nullptr, nullptr),
                       "writing");
}

Status Device::Impl::read(const device::Buffer& from, void* to, std::int64_t bytes) {
  if (bytes == 0) return {};
  return device::check(calls.clEnqueueReadBuffer(queue, from.get(), CL_FALSE, 0, static_cast<std::size_t>(bytes), to, 0, nullptr, nullptr), "reading");
}

Status Device::Impl::enqueue(cl_kernel handle, device::Kernel kernel, device::Grid grid) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
  const std::array<std::size_t, 3> local{static_cast<std::size_t>(work_group), 1, 1};
  const std::array<std::size_t, 3> global{static_cast<std::size_t>(grid.x * work_group), static_cast<std::size_t>(grid.y), static_cast<std::size_t>(grid.z)};
  return device::check(calls.clEnqueueNDRangeKernel(queue, handle, 3, nullptr, global.data(), local.data(), 0, nullptr, nullptr),
                       device::kKernelNames[static_cast<std::size_t>(kernel)]);
}

Status Device::Impl::flush() { return device::check(calls.clFlush(queue), "starting"); }

Status Device::Impl::finish() {
  Status status = device::check(calls.clFinish(queue), "waiting");
  if (!status.ok()) ++epoch;
  return status;
}

}  // namespace seriatim
