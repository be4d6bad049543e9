// What the rest of the room sees of an opened device: buffers, programs and launches on one queue in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/opencl_calls.hpp"
#include "device/shape.hpp"
#include "seriatim/device.hpp"

namespace seriatim::device {

// A device buffer that is released with its owner. The device outlives it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const OpenClCalls& calls, cl_mem memory, std::int64_t bytes) : calls_(&calls), memory_(memory), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept : calls_(other.calls_), memory_(other.memory_), bytes_(other.bytes_) { other.memory_ = nullptr; }
  Buffer& operator=(Buffer other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer() {
    if (memory_ != nullptr) calls_->clReleaseMemObject(memory_);
  }
  cl_mem get() const { return memory_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  const OpenClCalls* calls_ = nullptr;
  cl_mem memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

enum class Kernel : std::uint8_t { kPool, kScore, kSelect, kRow, kSplits, kFold };
inline constexpr std::array<const char*, 6> kKernelNames{"pool_groups", "score_groups", "select_groups", "expand_rows", "attend_splits", "fold_splits"};

// The kernels built for one pair of dtypes.
struct Program {
  DType kv_dtype = DType::kF32;
  DType index_dtype = DType::kF32;
  cl_program program = nullptr;
  std::array<cl_kernel, kKernelNames.size()> kernels{};
};

// Work-groups along the three axes.
struct Grid {
  std::int64_t x = 1;
  std::int64_t y = 1;
  std::int64_t z = 1;
};

// How devices are opened: by the installed loader, or by a test's table; and from what text the kernels are built.
Result<std::vector<DeviceInfo>> list_devices_by(const OpenClCalls& calls);
Result<std::shared_ptr<Device>> open_by(const OpenClCalls& calls, std::string_view name, const DeviceOptions& options,
                                        const char* kernel_text = nullptr);

}  // namespace seriatim::device

namespace seriatim {

struct Device::Impl {
  explicit Impl(const device::OpenClCalls& table) : calls(table) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const device::OpenClCalls calls;  // a copy: a test's table may be gone before the device
  DeviceInfo info;
  cl_device_id id = nullptr;
  cl_context context = nullptr;
  cl_command_queue queue = nullptr;
  std::int64_t work_group = 0;
  const char* kernel_text = nullptr;
  std::vector<std::unique_ptr<device::Program>> programs;
  // Moved on when something enqueued has failed: what any sequence sent before is not to be relied on.
  std::int64_t epoch = 0;

  // Errors  OutOfMemory, Io.
  Result<device::Buffer> buffer(std::int64_t bytes);
  // Builds once per pair. Errors  Unsupported: with the build log. OutOfMemory, Io.
  Result<const device::Program*> program(const Geometry& geometry);

  // The following enqueue and return; what is written or read from stays as it is until the queue is finished.
  Status write(const device::Buffer& to, std::int64_t offset, const void* from, std::int64_t bytes);
  Status read(const device::Buffer& from, void* to, std::int64_t bytes);
  template <typename... Arguments>
  Status launch(const device::Program& program, device::Kernel kernel, device::Grid grid, const Arguments&... arguments) {
    cl_uint index = 0;
    cl_int code = CL_SUCCESS;
    const cl_kernel handle = program.kernels[static_cast<std::size_t>(kernel)];
    ((code = code == CL_SUCCESS ? set(handle, index++, arguments) : code), ...);
    if (code != CL_SUCCESS) return device::check(code, device::kKernelNames[static_cast<std::size_t>(kernel)]);
    return enqueue(handle, kernel, grid);
  }
  Status flush();
  // Waits for all. On an error the epoch moves on.
  Status finish();

 private:
  template <typename T>
  cl_int set(cl_kernel kernel, cl_uint index, const T& value) {
    return calls.clSetKernelArg(kernel, index, sizeof value, &value);
  }
  cl_int set(cl_kernel kernel, cl_uint index, const device::Buffer& buffer) {
    const cl_mem memory = buffer.get();
    return calls.clSetKernelArg(kernel, index, sizeof memory, &memory);
  }
  Status enqueue(cl_kernel handle, device::Kernel kernel, device::Grid grid);
};

}  // namespace seriatim
