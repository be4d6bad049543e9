#include "device/workspace.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <optional>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "seriatim/attend.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPartialHead = 3;  // PARTIAL_HEAD of the kernels

std::int64_t splits_of(const Geometry& geometry) {
  return (geometry.row_capacity() + kSplitEntries - 1) / kSplitEntries;
}

// A buffer on the device, and its entries.
struct Wanted {
  device::Buffer DeviceWorkspace::Impl::* buffer;
  std::int64_t per_query;
  std::int64_t more;
  std::int64_t entry_bytes;
};

std::array<Wanted, 15> wanted_buffers(const Geometry& geometry, std::int64_t visible_tokens) {
  using Impl = DeviceWorkspace::Impl;
  const std::int64_t heads = geometry.query_heads();
  return {{{&Impl::index_queries, geometry.index_heads() * geometry.index_dim(), 1, 4},
           {&Impl::head_weights, geometry.index_heads(), 1, 4},
           {&Impl::visible, 1, 1, 8},
           {&Impl::scores, geometry.groups(visible_tokens), 1, 4},
           {&Impl::chosen, geometry.budget_groups(), 1, 4},
           {&Impl::counts, 1, 1, 4},
           {&Impl::first_nan, 1, 1, 4},
           {&Impl::rows, geometry.row_capacity(), 1, 4},
           {&Impl::widths, 1, 1, 4},
           {&Impl::queries, heads, geometry.head_dim(), 4},
           {&Impl::sinks, heads, 1, 4},
           {&Impl::partials, splits_of(geometry) * heads, kPartialHead + geometry.value_dim(), 4},
           {&Impl::output, heads, geometry.value_dim(), 4},
           {&Impl::lse, heads, 1, 4},
           {&Impl::overflow, heads, 1, 4}}};
}

std::optional<std::int64_t> bytes_of(const Wanted& one, std::int64_t queries) {
  return checked_product({queries, one.per_query, one.more, one.entry_bytes});
}

Status too_large() {
  return Status::error(Code::kOverflow, "max_queries", "max_queries: the workspace's bytes do not fit 64 bits");
}

Status admit_sizes(std::int64_t visible_tokens, std::int64_t queries) {
  if (visible_tokens < 0 || visible_tokens > Geometry::kPositions) {
    return Status::error(Code::kInvalidArgument, "max_visible_tokens",
                         formatted("max_visible_tokens: {} is not in 0..{}", visible_tokens, Geometry::kPositions));
  }
  if (queries < 1 || queries > DeviceWorkspace::kMostQueries) {
    return Status::error(Code::kInvalidArgument, "max_queries",
                         formatted("max_queries: {} is not in 1..{}", queries, DeviceWorkspace::kMostQueries));
  }
  return {};
}

}  // namespace

Result<std::int64_t> DeviceWorkspace::bytes_for(const Geometry& geometry, std::int64_t visible_tokens,
                                                std::int64_t queries) {
  if (Status s = admit_sizes(visible_tokens, queries); !s.ok()) return s;
  std::int64_t all = 0;
  for (const Wanted& one : wanted_buffers(geometry, visible_tokens)) {
    const auto bytes = bytes_of(one, queries);
    const auto sum = bytes ? checked_add(all, *bytes) : std::nullopt;
    if (!sum) return too_large();
    all = *sum;
  }
  return all;
}

Status DeviceWorkspace::Impl::prepare(std::int64_t visible_tokens, std::int64_t most) {
  if (Status s = admit_sizes(visible_tokens, most); !s.ok()) return s;
  max_visible_tokens = visible_tokens;
  max_queries = most;
  score_stride = geometry.groups(visible_tokens);
  splits = splits_of(geometry);
  Device::Impl& driver = device->impl();
  auto built = driver.program(geometry);
  if (!built.ok()) return built.status();
  program = *built;

  for (const Wanted& one : wanted_buffers(geometry, visible_tokens)) {
    const auto bytes = bytes_of(one, most);
    if (!bytes) return too_large();
    auto buffer = driver.buffer(*bytes);
    if (!buffer.ok()) return buffer.status();
    this->*one.buffer = std::move(*buffer);
    device_bytes += (this->*one.buffer).bytes();
  }

  const std::int64_t index_floats = geometry.index_heads() * geometry.index_dim();
  const std::int64_t heads = geometry.query_heads();
  Status status;
  const auto host = [&](auto& array, std::int64_t entries) {
    if (status.ok()) status = driver.host_array(array, entries);  // no more than the device's buffers, whose sizes fit
  };
  host(host_index_queries, most * index_floats);
  host(host_head_weights, most * geometry.index_heads());
  host(host_visible, most);
  host(host_first_nan, most);
  host(host_rows, most * geometry.row_capacity());
  host(host_widths, most);
  host(given_rows, most * geometry.row_capacity());
  host(given_widths, most);
  host(host_queries, most * heads * geometry.head_dim());
  host(host_sinks, most * heads);  // an ask has sinks of its own, and one query at least
  host(host_output, most * heads * geometry.value_dim() * 4);
  host(host_lse, most * heads);
  host(host_overflow, most * heads);
  return status;
}

Status DeviceWorkspace::drop(Status status) {
  impl_->planned = impl_->attended = 0;
  const Status drained = impl_->device->impl().finish();  // nothing may be using this memory any more
  return status.ok() ? drained : status;
}

Result<DeviceWorkspace> DeviceWorkspace::create(std::shared_ptr<Device> device, const Geometry& geometry,
                                                std::int64_t max_visible_tokens, std::int64_t max_queries) {
  DefaultFloatEnvironment environment;
  try {
    auto impl = std::make_unique<Impl>(std::move(device), geometry);
    if (Status s = impl->prepare(max_visible_tokens, max_queries); !s.ok()) return s;
    return DeviceWorkspace(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kOutOfMemory, "workspace", "workspace: the system refused memory");
  }
}

DeviceWorkspace::DeviceWorkspace(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceWorkspace::DeviceWorkspace(DeviceWorkspace&&) noexcept = default;
DeviceWorkspace& DeviceWorkspace::operator=(DeviceWorkspace&& other) noexcept {
  if (impl_ != nullptr) (void)impl_->device->impl().finish();
  impl_ = std::move(other.impl_);
  return *this;
}
DeviceWorkspace::~DeviceWorkspace() {
  if (impl_ != nullptr && impl_->planned + impl_->attended > 0) (void)impl_->device->impl().finish();
}

std::int64_t DeviceWorkspace::device_bytes() const { return impl_->device_bytes; }

}  // namespace seriatim
