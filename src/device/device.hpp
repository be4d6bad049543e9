// What the rest of the module sees of an opened device: buffers, programs and launches on one queue in order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/driver.hpp"
#include "device/shape.hpp"
#include "seriatim/device.hpp"

namespace seriatim::device {

// Device memory that is released with its owner. The device outlives it.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Driver& driver, Memory memory, std::int64_t bytes) : driver_(&driver), memory_(memory), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer() {
    if (memory_ != 0) driver_->release(memory_);
  }
  const Memory& get() const { return memory_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
  }
  Driver* driver_ = nullptr;
  Memory memory_ = 0;
  std::int64_t bytes_ = 0;
};

// Host memory that a device reads and writes by itself. Starts as zeros. The device outlives it.
template <typename T>
class HostArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  HostArray() = default;
  HostArray(Driver& driver, std::byte* memory, std::size_t size)
      : driver_(&driver), data_(reinterpret_cast<T*>(memory)), size_(size) {}
  HostArray(HostArray&& other) noexcept { swap(other); }
  HostArray& operator=(HostArray other) noexcept {
    swap(other);
    return *this;
  }
  ~HostArray() {
    if (data_ != nullptr) driver_->release_host(reinterpret_cast<std::byte*>(data_));
  }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return size_; }

 private:
  void swap(HostArray& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }
  Driver* driver_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

// The kernels built for one pair of dtypes.
struct Program {
  DType kv_dtype = DType::kF32;
  DType index_dtype = DType::kF32;
  Kernels kernels{};
};

// Opens one of the devices that were found. `kernel_text` null: the library's own.
Result<std::shared_ptr<Device>> open_one(const std::vector<Listed>& found, std::string_view name,
                                         const DeviceOptions& options, const char* kernel_text = nullptr);

}  // namespace seriatim::device

namespace seriatim {

struct Device::Impl {
  std::unique_ptr<device::Driver> driver;
  DeviceInfo info;
  std::int64_t work_group = 0;
  const char* kernel_text = nullptr;
  std::vector<std::unique_ptr<device::Program>> programs;
  // Moved on when something enqueued has failed: what any sequence sent before is not to be relied on.
  std::int64_t epoch = 0;

  // Errors  OutOfMemory, Io.
  Result<device::Buffer> buffer(std::int64_t bytes);
  // Errors  OutOfMemory, Io.
  template <typename T>
  Status host_array(device::HostArray<T>& to, std::int64_t size) {
    auto memory = host_bytes(size * static_cast<std::int64_t>(sizeof(T)));
    if (!memory.ok()) return memory.status();
    to = device::HostArray<T>(*driver, *memory, static_cast<std::size_t>(size));
    return {};
  }
  // Builds once per pair. Errors  Unsupported: with the build log. OutOfMemory, Io.
  Result<const device::Program*> program(const Geometry& geometry);

  // The following enqueue and return; what is written or read from stays as it is until the queue is finished.
  Status write(const device::Buffer& to, std::int64_t offset, const void* from, std::int64_t bytes);
  Status read(const device::Buffer& from, void* to, std::int64_t bytes);
  template <typename... Arguments>
  Status launch(const device::Program& program, device::Kernel kernel, device::Grid grid,
                const Arguments&... arguments) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return {};
    const std::array<device::Argument, sizeof...(Arguments)> all{argument(arguments)...};
    const auto which = static_cast<std::size_t>(kernel);
    return driver->launch(program.kernels[which], device::kKernelNames[which], grid, work_group, all);
  }
  Status flush() { return driver->flush(); }
  // Waits for all. On an error the epoch moves on.
  Status finish();

 private:
  Result<std::byte*> host_bytes(std::int64_t bytes);
  template <typename T>
  static device::Argument argument(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return {&value, sizeof value};
  }
  static device::Argument argument(const device::Buffer& buffer) { return {&buffer.get(), sizeof buffer.get()}; }
};

}  // namespace seriatim
