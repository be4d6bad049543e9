#include "device/workspace.hpp"

#include <algorithm>
#include <array>
#include <new>

#include "base/checked.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "seriatim/attend.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kMostQueries = 65535;  // work-groups along an axis that every device has
constexpr std::int64_t kPartialHead = 3;      // PARTIAL_HEAD of the kernels

}  // namespace

Status DeviceWorkspace::Impl::prepare(std::int64_t visible_tokens, std::int64_t most) {
  if (visible_tokens < 0 || visible_tokens > Geometry::kPositions) {
    return Status::error(Code::kInvalidArgument, "max_visible_tokens",
                         formatted("max_visible_tokens: {} is not in 0..{}", visible_tokens, Geometry::kPositions));
  }
  if (most < 1 || most > kMostQueries) {
    return Status::error(Code::kInvalidArgument, "max_queries",
                         formatted("max_queries: {} is not in 1..{}", most, kMostQueries));
  }
  max_visible_tokens = visible_tokens;
  max_queries = most;
  score_stride = geometry.groups(visible_tokens);
  splits = (geometry.row_capacity() + kSplitEntries - 1) / kSplitEntries;
  Device::Impl& driver = device->impl();
  auto built = driver.program(geometry);
  if (!built.ok()) return built.status();
  program = *built;

  const std::int64_t index_floats = geometry.index_heads() * geometry.index_dim();
  const std::int64_t heads = geometry.query_heads();
  struct Wanted {
    device::Buffer& buffer;
    std::int64_t per_query;  // entries
    std::int64_t more;
    std::int64_t entry_bytes;
  };
  const std::array wanted{
      Wanted{index_queries, index_floats, 1, 4},
      Wanted{head_weights, geometry.index_heads(), 1, 4},
      Wanted{visible, 1, 1, 8},
      Wanted{scores, score_stride, 1, 4},
      Wanted{chosen, geometry.budget_groups(), 1, 4},
      Wanted{counts, 1, 1, 4},
      Wanted{first_nan, 1, 1, 4},
      Wanted{rows, geometry.row_capacity(), 1, 4},
      Wanted{widths, 1, 1, 4},
      Wanted{queries, heads, geometry.head_dim(), 4},
      Wanted{sinks, heads, 1, 4},
      Wanted{partials, splits * heads, kPartialHead + geometry.value_dim(), 4},
      Wanted{output, heads, geometry.value_dim(), 4},
      Wanted{lse, heads, 1, 4},
      Wanted{overflow, heads, 1, 4},
  };
  for (const Wanted& one : wanted) {
    const auto bytes = checked_product({most, one.per_query, one.more, one.entry_bytes});
    if (!bytes)
      return Status::error(Code::kOverflow, "max_queries", "max_queries: the workspace's bytes do not fit 64 bits");
    auto buffer = driver.buffer(*bytes);
    if (!buffer.ok()) return buffer.status();
    one.buffer = std::move(*buffer);
    device_bytes += one.buffer.bytes();
  }

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
  host(host_sinks, heads);
  host(host_output, most * heads * geometry.value_dim() * 4);
  host(host_lse, most * heads);
  host(host_overflow, most * heads);
  return status;
}

bool DeviceWorkspace::Impl::needs_scores(std::int64_t visible_tokens) const {
  return nan == NanPolicy::kExclude || geometry.groups(visible_tokens) > geometry.budget_groups();
}

Status DeviceWorkspace::Impl::drop(Status status) {
  planned = -1;
  attended = -1;
  const Status drained = device->impl().finish();  // nothing may be using this memory any more; the first error counts
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
  if (impl_ != nullptr && (impl_->planned >= 0 || impl_->attended >= 0)) (void)impl_->device->impl().finish();
}

std::int64_t DeviceWorkspace::device_bytes() const { return impl_->device_bytes; }
const WorkDone& DeviceWorkspace::done() const { return impl_->done; }

}  // namespace seriatim
