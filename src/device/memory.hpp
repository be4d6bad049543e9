// Where the pages of a cache lie that a device reads: host memory and one buffer of the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/device.hpp"
#include "seriatim/cache.hpp"

namespace seriatim {

// A region of host memory and one buffer of the device's, place for place. Give it to one Cache as its allocator.
class DeviceMemory final : public PageAllocator {
 public:
  // Errors  InvalidArgument: not positive. OutOfMemory: of the host or the device. Io.
  static Result<std::unique_ptr<DeviceMemory>> create(std::shared_ptr<Device> device, std::int64_t bytes);
  // Bytes that hold all pages of a cache of these options.
  // Errors  InvalidArgument: no capacity, and those of the cache. Overflow.
  static Result<std::int64_t> bytes_for(const Geometry& geometry, const CacheOptions& options);
  ~DeviceMemory() override;
  std::byte* allocate(std::int64_t bytes) override;
  void release(std::byte* memory, std::int64_t bytes) noexcept override;

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }
  explicit DeviceMemory(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

struct DeviceMemory::Impl {
  Impl(std::shared_ptr<Device> d, device::HostArray<std::byte> h, device::Buffer b)
      : device(std::move(d)), host(std::move(h)), buffer(std::move(b)), region({host.data(), host.size()}) {}

  // Where the device has this byte of a page; nothing if the page is not of this memory.
  std::optional<std::int64_t> place_of(const std::byte* page) const {
    if (page < host.data() || page >= host.data() + host.size()) return std::nullopt;
    return page - host.data();
  }

  std::shared_ptr<Device> device;  // first, so that it goes last
  device::HostArray<std::byte> host;
  device::Buffer buffer;
  RegionAllocator region;
};

}  // namespace seriatim
