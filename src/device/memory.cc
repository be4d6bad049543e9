#include "device/memory.hpp"

#include <fmt/format.h>

#include <new>

namespace seriatim {

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::create(std::shared_ptr<Device> device, std::int64_t bytes) {
  if (bytes <= 0) return Status::error(Code::kInvalidArgument, "bytes", fmt::format("bytes: {} is not positive", bytes));
  auto buffer = device->impl().buffer(bytes);
  if (!buffer.ok()) return buffer.status();
  try {
    AlignedBuffer<std::byte> host(bytes);
    auto impl = std::make_unique<Impl>(std::move(device), std::move(host), std::move(*buffer));
    return std::make_unique<DeviceMemory>(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "bytes", fmt::format("bytes: the system refused {}", bytes));
  }
}

DeviceMemory::DeviceMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMemory::~DeviceMemory() = default;
std::byte* DeviceMemory::allocate(std::int64_t bytes) { return impl_->region.allocate(bytes); }
void DeviceMemory::release(std::byte* memory, std::int64_t bytes) noexcept { impl_->region.release(memory, bytes); }

}  // namespace seriatim
