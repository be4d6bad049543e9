#include "device/memory.hpp"

#include <new>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"

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

Result<std::int64_t> DeviceMemory::bytes_for(const Geometry& geometry, std::int64_t layers, std::int64_t tokens) {
  if (layers < 0 || tokens < 0)
    return Status::error(Code::kInvalidArgument, "tokens", "tokens: a negative count of tokens or layers");
  const std::int64_t kv_bytes =
      geometry.kv_heads() * (geometry.head_dim() + geometry.value_dim()) * dtype_bytes(geometry.kv_dtype());
  // Raw keys once; pooled keys as if every token were a group, which also covers the second set of an eviction where r
  // > 1.
  const std::int64_t index_bytes = 3 * geometry.index_dim() * dtype_bytes(geometry.index_dtype());
  constexpr std::int64_t kCoordinates = 12;
  // What rounding up to whole pages, and blocks to 64 bytes, may take besides.
  constexpr std::int64_t kPageTokens = 512;
  const std::int64_t spare = kPageTokens + 16 * geometry.group_tokens();
  const auto all =
      checked_product({layers, kv_bytes + index_bytes + kCoordinates + 64, checked_add(tokens, spare).value_or(-1)});
  if (!all) return Status::error(Code::kOverflow, "tokens", "tokens: the bytes do not fit 64 bits");
  return *all;
}

DeviceMemory::DeviceMemory(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceMemory::~DeviceMemory() = default;
std::byte* DeviceMemory::allocate(std::int64_t bytes) { return impl_->region.allocate(bytes); }
void DeviceMemory::release(std::byte* memory, std::int64_t bytes) noexcept { impl_->region.release(memory, bytes); }

}  // namespace seriatim
