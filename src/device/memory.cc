#include "device/memory.hpp"

#include <new>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "cache/state.hpp"

namespace seriatim {

Result<std::unique_ptr<DeviceMemory>> DeviceMemory::create(std::shared_ptr<Device> device, std::int64_t bytes) {
  DefaultFloatEnvironment environment;
  if (bytes <= 0) return Status::error(Code::kInvalidArgument, "bytes", formatted("bytes: {} is not positive", bytes));
  auto buffer = device->impl().buffer(bytes);
  if (!buffer.ok()) return buffer.status();
  try {
    device::HostArray<std::byte> host;
    if (Status s = device->impl().host_array(host, bytes); !s.ok()) return s;
    auto impl = std::make_unique<Impl>(std::move(device), std::move(host), std::move(*buffer));
    return std::make_unique<DeviceMemory>(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "bytes", formatted("bytes: the system refused {}", bytes));
  }
}

Result<std::int64_t> DeviceMemory::bytes_for(const Geometry& geometry, const CacheOptions& options) {
  if (options.capacity_tokens <= 0 && options.capacity_bytes <= 0) {
    return Status::error(Code::kInvalidArgument, "capacity_tokens",
                         "capacity_tokens: none; the memory of a cache on a device is taken at once");
  }
  const auto layout = Layout::make(geometry, options);
  if (!layout.ok()) return layout.status();
  // What the region's start may lack to the alignment of pages is left unused.
  if (options.capacity_bytes > 0) {
    const auto all = checked_add(options.capacity_bytes, kBlockAlignment);
    if (all) return *all;
  } else {
    const std::int64_t pages = pages_for(0, options.capacity_tokens, layout->page_tokens);
    const auto pooled = checked_product({Store::kPooledPagesPerTokenPage, layout->pooled_page_bytes});
    const auto each = pooled ? checked_add(layout->token_page_bytes, *pooled) : std::nullopt;
    const auto whole = each ? checked_product({pages, *each}) : std::nullopt;
    const auto all = whole ? checked_add(*whole, kBlockAlignment) : std::nullopt;
    if (all) return *all;
  }
  return Status::error(Code::kOverflow, "capacity_tokens", "capacity_tokens: the bytes do not fit 64 bits");
}

DeviceMemory::DeviceMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMemory::~DeviceMemory() = default;
std::byte* DeviceMemory::allocate(std::int64_t bytes) { return impl_->region.allocate(bytes); }
void DeviceMemory::release(std::byte* memory, std::int64_t bytes) noexcept { impl_->region.release(memory, bytes); }

}  // namespace seriatim
