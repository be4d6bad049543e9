// The two halves of DeviceMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "device/device.hpp"

namespace seriatim {

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
