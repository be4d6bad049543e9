// All memory of a call on a device: buffers there, and the host's side of what crosses.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "device/sequence.hpp"
#include "seriatim/step.hpp"

namespace seriatim {

// Scratch of calls, taken once. plan() and attend() take one admitted ask each: they copy its inputs, enqueue and
// return. Several of a kind may follow each other, their queries numbered through; wait() ends them and writes their
// rows or outputs, so that on any error these are as they were.
class DeviceWorkspace {
 public:
  // Errors  InvalidArgument: counts. Overflow. Unsupported: the kernels do not build. OutOfMemory, Io.
  static Result<DeviceWorkspace> create(std::shared_ptr<Device> device, const Geometry& geometry,
                                        std::int64_t max_visible_tokens, std::int64_t max_queries);
  static constexpr std::int64_t kMostQueries = 65535;  // work-groups along an axis that every device has
  // What create() takes on the device. Errors  InvalidArgument: counts. Overflow.
  static Result<std::int64_t> bytes_for(const Geometry& geometry, std::int64_t max_visible_tokens,
                                        std::int64_t max_queries);
  DeviceWorkspace(DeviceWorkspace&&) noexcept;
  DeviceWorkspace& operator=(DeviceWorkspace&&) noexcept;
  ~DeviceWorkspace();

  // Over the sequence's layer as it was last followed or staged.
  // Takes   rows and outputs of all asks since the last wait(), this one's after those before
  // Errors  OutOfMemory, Io: the driver; nothing is open any more.
  Status plan(const DeviceSequence& sequence, std::int64_t layer, const IndexQueries& queries, NanPolicy nan,
              Rows rows);
  Status attend(const DeviceSequence& sequence, std::int64_t layer, const AttendQueries& queries, ConstRows rows,
                Tensor output, Tensor lse);
  // Ends what was enqueued and writes it.
  // Errors  what the driver reports: OutOfMemory, Io; sequences then send everything anew. NotANumber: the first query
  //         and group. Nothing is written by these. Overflow: the first query and head.
  Status wait();
  // Forgets what was enqueued, once the device is done with it. Gives `status`, or else what the driver reports.
  Status drop(Status status);

  std::int64_t device_bytes() const;

  struct Impl;  // opaque
  Impl& impl() { return *impl_; }

 private:
  explicit DeviceWorkspace(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct DeviceWorkspace::Impl {
  Impl(std::shared_ptr<Device> d, const Geometry& g)
      : device(std::move(d)), geometry(g), shape(device::shape_args(g)) {}

  // Errors  Overflow, Unsupported, OutOfMemory, Io. Throws bad_alloc.
  Status prepare(std::int64_t visible_tokens, std::int64_t queries);

  // One kernel each (attend: splits and their fold), for queries `first` and on of those that are open, whose inputs
  // the buffers hold.
  Status launch_score(const device::DeviceLayer& layer, const device::Buffer& memory, std::int64_t first,
                      std::int64_t count, bool weighted, bool exclude_nan);
  Status launch_select(std::int64_t count, bool exclude_nan);
  Status launch_row(std::int64_t count, const device::LayerArgs& layer);
  Status launch_attend(const device::DeviceLayer& layer, const device::Buffer& memory, std::int64_t count,
                       DType output_dtype, bool has_sinks);
  Status enqueue_plan(const device::DeviceLayer& layer, const device::Buffer& memory, std::int64_t first,
                      std::int64_t count, bool weighted, bool exclude_nan);
  Status enqueue_attend(const device::DeviceLayer& layer, const device::Buffer& memory, std::int64_t first,
                        std::int64_t count, bool has_sinks);
  Status judge_scores() const;
  Status judge_outputs() const;
  void write_rows() const;
  void write_outputs() const;

  std::shared_ptr<Device> device;  // first, so that it goes last
  const Geometry geometry;
  const device::ShapeArgs shape;
  const device::Program* program = nullptr;
  std::int64_t max_visible_tokens = 0;
  std::int64_t max_queries = 0;
  std::int64_t score_stride = 0;
  std::int64_t splits = 0;
  std::int64_t device_bytes = 0;

  // On the device.
  device::Buffer index_queries, head_weights, visible, scores, chosen, counts, first_nan, rows, widths;
  device::Buffer queries, sinks, partials, output, lse, overflow;

  // The host's side of what crosses; a write or a read may be using it until wait().
  device::HostArray<float> host_index_queries, host_head_weights, host_queries, host_sinks, host_lse;
  device::HostArray<std::int64_t> host_visible;
  device::HostArray<std::int32_t> host_first_nan, host_rows, host_widths, given_rows, given_widths, host_overflow;
  device::HostArray<std::byte> host_output;

  // What wait() is to finish: queries, and where the first of them goes.
  std::int64_t planned = 0;
  NanPolicy nan = NanPolicy::kRefuse;
  Rows to_rows;
  std::int64_t attended = 0;
  Tensor to_output;
  Tensor to_lse;
};

}  // namespace seriatim
