// What DeviceWorkspace holds: buffers on the device, and the host's side of what crosses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/sequence.hpp"
#include "seriatim/device.hpp"

namespace seriatim {

struct DeviceWorkspace::Impl {
  Impl(std::shared_ptr<Device> d, const Geometry& g)
      : device(std::move(d)), geometry(g), shape(device::shape_args(g)) {}

  // Errors  Overflow, Unsupported, OutOfMemory, Io. Throws bad_alloc.
  Status prepare(std::int64_t visible_tokens, std::int64_t queries);

  // One kernel each (attend: splits and their fold), over what the buffers hold of the open plan and attend.
  Status launch_score(const device::DeviceLayer& layer, const device::Buffer& memory, bool weighted, bool exclude_nan);
  Status launch_select(bool exclude_nan);
  Status launch_row(const device::LayerArgs& layer);
  Status launch_attend(const device::DeviceLayer& layer, const device::Buffer& memory, bool has_sinks);
  Status enqueue_plan(const device::DeviceLayer& layer, const device::Buffer& memory, bool weighted, bool exclude_nan);
  Status enqueue_attend(const device::DeviceLayer& layer, const device::Buffer& memory, bool own_rows, bool has_sinks);
  // Drops what was enqueued. Gives `status`.
  Status drop(Status status);
  Status judge_scores() const;
  Status judge_outputs() const;
  void write_rows() const;
  void write_outputs() const;
  void account();
  bool needs_scores(std::int64_t visible_tokens) const;

  std::shared_ptr<Device> device;  // first, so that it goes last
  const Geometry geometry;
  const device::ShapeArgs shape;
  const device::Program* program = nullptr;
  std::int64_t max_visible_tokens = 0;
  std::int64_t max_queries = 0;
  std::int64_t score_stride = 0;
  std::int64_t splits = 0;
  std::int64_t device_bytes = 0;
  WorkDone done;

  // On the device.
  device::Buffer index_queries, head_weights, visible, scores, chosen, counts, first_nan, rows, widths;
  device::Buffer queries, sinks, partials, output, lse, overflow;

  // The host's side of what crosses; a write or a read may be using it until wait().
  device::HostArray<float> host_index_queries, host_head_weights, host_queries, host_sinks, host_lse;
  device::HostArray<std::int64_t> host_visible;
  device::HostArray<std::int32_t> host_first_nan, host_rows, host_widths, given_rows, given_widths, host_overflow;
  device::HostArray<std::byte> host_output;

  // What wait() is to finish.
  std::int64_t planned = -1;  // queries; -1: no plan is open
  NanPolicy nan = NanPolicy::kRefuse;
  Rows to_rows;
  std::int64_t attended = -1;
  Tensor to_output;
  Tensor to_lse;
};

}  // namespace seriatim
