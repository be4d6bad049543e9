// One call on a device: plan() and attend() copy in and enqueue; wait() judges and copies out.
#include <algorithm>
#include <cstring>

#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "device/workspace.hpp"
#include "step/batch.hpp"

namespace seriatim {
namespace {

using device::Kernel;

// Every element as f32, dense: exact.
void widen(const ConstTensor& from, float* to) {
  for (std::int64_t a = 0; a < from.shape[0]; ++a) {
    for (std::int64_t b = 0; b < from.shape[1]; ++b) {
      for (std::int64_t c = 0; c < from.shape[2]; ++c) *to++ = load_element(from.at(a, b, c), from.dtype);
    }
  }
}

const device::DeviceLayer& layer_of(const DeviceSequence& sequence, std::int64_t layer) {
  return sequence.impl().layers[static_cast<std::size_t>(layer)];
}

}  // namespace

Status DeviceWorkspace::Impl::launch_score(const device::DeviceLayer& layer, const device::Buffer& memory,
                                           std::int64_t first, std::int64_t count, bool weighted, bool exclude_nan) {
  Device::Impl& driver = device->impl();
  std::int64_t groups = 0;
  for (std::int64_t q = first; q < first + count; ++q)
    groups = std::max(groups, host_visible[static_cast<std::size_t>(q)] / geometry.group_tokens());
  const std::int32_t weights = weighted ? 1 : 0;
  const std::int32_t exclude = exclude_nan ? 1 : 0;
  return driver.launch(*program, Kernel::kScore, {device::groups_of(groups, driver.work_group), count}, memory,
                       layer.in_use().groups.buffer, index_queries, head_weights, visible, scores, layer.args, shape,
                       score_stride, weights, exclude);
}

Status DeviceWorkspace::Impl::launch_select(std::int64_t count, bool exclude_nan) {
  const std::int32_t exclude = exclude_nan ? 1 : 0;
  return device->impl().launch(*program, Kernel::kSelect, {count}, scores, visible, chosen, counts, first_nan, shape,
                               score_stride, exclude);
}

Status DeviceWorkspace::Impl::launch_row(std::int64_t count, const device::LayerArgs& layer) {
  Device::Impl& driver = device->impl();
  return driver.launch(*program, Kernel::kRow, {device::groups_of(geometry.row_capacity(), driver.work_group), count},
                       chosen, counts, visible, rows, widths, layer, shape);
}

Status DeviceWorkspace::Impl::launch_attend(const device::DeviceLayer& layer, const device::Buffer& memory,
                                            std::int64_t count, DType output_dtype, bool has_sinks) {
  Device::Impl& driver = device->impl();
  const std::int64_t blocks = geometry.kv_heads() * device::groups_of(geometry.heads_per_kv(), BLOCK_HEADS);
  if (Status s = driver.launch(*program, Kernel::kSplits, {splits, blocks, count}, memory, layer.in_use().tokens.buffer,
                               queries, rows, widths, partials, layer.args, shape, splits);
      !s.ok()) {
    return s;
  }
  const std::int32_t sinks_given = has_sinks ? 1 : 0;
  const auto dtype = static_cast<std::int32_t>(output_dtype);
  return driver.launch(*program, Kernel::kFold, {geometry.query_heads(), count}, partials, sinks, widths, output, lse,
                       overflow, shape, splits, sinks_given, dtype);
}

// The buffers on the device serve one ask after the other, because the queue is in order; the host's sides keep what is
// read and written of all of them.
Status DeviceWorkspace::Impl::enqueue_plan(const device::DeviceLayer& layer, const device::Buffer& memory,
                                           std::int64_t first, std::int64_t count, bool weighted, bool exclude_nan) {
  Device::Impl& driver = device->impl();
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t query_floats = heads * geometry.index_dim();
  if (Status s =
          driver.write(index_queries, 0, host_index_queries.data() + first * query_floats, count * query_floats * 4);
      !s.ok())
    return s;
  if (weighted) {
    if (Status s = driver.write(head_weights, 0, host_head_weights.data() + first * heads, count * heads * 4); !s.ok())
      return s;
  }
  if (Status s = driver.write(visible, 0, host_visible.data() + first, count * 8); !s.ok()) return s;
  if (Status s = launch_score(layer, memory, first, count, weighted, exclude_nan); !s.ok()) return s;
  if (Status s = launch_select(count, exclude_nan); !s.ok()) return s;
  if (Status s = launch_row(count, layer.args); !s.ok()) return s;
  const std::int64_t capacity = geometry.row_capacity();
  if (Status s = driver.read(first_nan, host_first_nan.data() + first, count * 4); !s.ok()) return s;
  if (Status s = driver.read(widths, host_widths.data() + first, count * 4); !s.ok()) return s;
  if (Status s = driver.read(rows, host_rows.data() + first * capacity, count * capacity * 4); !s.ok()) return s;
  return driver.flush();
}

Status DeviceWorkspace::Impl::enqueue_attend(const device::DeviceLayer& layer, const device::Buffer& memory,
                                             std::int64_t first, std::int64_t count, bool has_sinks) {
  Device::Impl& driver = device->impl();
  const std::int64_t heads = geometry.query_heads();
  const std::int64_t query_floats = heads * geometry.head_dim();
  const std::int64_t output_bytes = row_bytes(to_output.dtype, heads * geometry.value_dim());
  const std::int64_t capacity = geometry.row_capacity();
  if (Status s = driver.write(queries, 0, host_queries.data() + first * query_floats, count * query_floats * 4);
      !s.ok())
    return s;
  if (has_sinks) {
    if (Status s = driver.write(sinks, 0, host_sinks.data() + first * heads, heads * 4); !s.ok()) return s;
  }
  if (Status s = driver.write(rows, 0, given_rows.data() + first * capacity, count * capacity * 4); !s.ok()) return s;
  if (Status s = driver.write(widths, 0, given_widths.data() + first, count * 4); !s.ok()) return s;
  if (Status s = launch_attend(layer, memory, count, to_output.dtype, has_sinks); !s.ok()) return s;
  if (Status s = driver.read(output, host_output.data() + first * output_bytes, count * output_bytes); !s.ok())
    return s;
  if (Status s = driver.read(lse, host_lse.data() + first * heads, count * heads * 4); !s.ok()) return s;
  if (Status s = driver.read(overflow, host_overflow.data() + first * heads, count * heads * 4); !s.ok()) return s;
  return driver.flush();
}

Status DeviceWorkspace::plan(const DeviceSequence& sequence, std::int64_t layer_number, const IndexQueries& queries,
                             NanPolicy nan, Rows rows) {
  DefaultFloatEnvironment environment;
  Impl& work = *impl_;
  const device::DeviceLayer& layer = layer_of(sequence, layer_number);
  const std::int64_t heads = work.geometry.index_heads();
  const std::int64_t first = work.planned;
  const std::int64_t count = queries.queries.shape[0];
  widen(queries.queries, work.host_index_queries.data() + first * heads * work.geometry.index_dim());
  if (!queries.head_weights.empty()) widen(queries.head_weights, work.host_head_weights.data() + first * heads);
  for (std::int64_t q = 0; q < count; ++q) {
    work.host_visible[static_cast<std::size_t>(first + q)] =
        queries.positions[static_cast<std::size_t>(q)] - layer.run.anchor + 1;
  }
  if (first == 0) work.to_rows = rows;
  work.nan = nan;
  work.planned += count;
  const Status status = work.enqueue_plan(layer, sequence.impl().memory.buffer, first, count,
                                          !queries.head_weights.empty(), nan == NanPolicy::kExclude);
  return status.ok() ? status : drop(status);
}

Status DeviceWorkspace::attend(const DeviceSequence& sequence, std::int64_t layer_number, const AttendQueries& queries,
                               ConstRows rows, Tensor output, Tensor lse) {
  DefaultFloatEnvironment environment;
  Impl& work = *impl_;
  const std::int64_t heads = work.geometry.query_heads();
  const std::int64_t capacity = work.geometry.row_capacity();
  const std::int64_t first = work.attended;
  const std::int64_t count = queries.queries.shape[0];
  widen(queries.queries, work.host_queries.data() + first * heads * work.geometry.head_dim());
  std::copy(queries.sinks.begin(), queries.sinks.end(), work.host_sinks.data() + first * heads);
  for (std::int64_t q = 0; q < count; ++q) {
    const auto row = rows.row(q);
    std::copy(row.begin(), row.end(), work.given_rows.data() + (first + q) * capacity);
    work.given_widths[static_cast<std::size_t>(first + q)] = rows.counts[q];
  }
  if (first == 0) {
    work.to_output = output;
    work.to_lse = lse;
  }
  work.attended += count;
  const Status status = work.enqueue_attend(layer_of(sequence, layer_number), sequence.impl().memory.buffer, first,
                                            count, !queries.sinks.empty());
  return status.ok() ? status : drop(status);
}

Status DeviceWorkspace::Impl::judge_scores() const {
  for (std::int64_t q = 0; nan == NanPolicy::kRefuse && q < planned; ++q) {
    const std::int32_t group = host_first_nan[static_cast<std::size_t>(q)];
    if (group >= 0) return nan_of(q, {.group = group});
  }
  return {};
}

Status DeviceWorkspace::Impl::judge_outputs() const {
  const std::int64_t heads = geometry.query_heads();
  const auto end = host_overflow.begin() + attended * heads;
  const auto bad = std::find_if(host_overflow.begin(), end, [](std::int32_t flag) { return flag != 0; });
  if (bad == end) return {};
  const std::int64_t place = bad - host_overflow.begin();
  return overflow_of(place / heads, place % heads);
}

void DeviceWorkspace::Impl::write_rows() const {
  const std::int64_t capacity = geometry.row_capacity();
  for (std::int64_t q = 0; q < planned; ++q) {
    std::int32_t* to = to_rows.positions + q * to_rows.stride;
    std::copy_n(host_rows.begin() + q * capacity, capacity, to);
    std::fill(to + capacity, to + to_rows.stride, -1);
    to_rows.counts[q] = host_widths[static_cast<std::size_t>(q)];
  }
}

void DeviceWorkspace::Impl::write_outputs() const {
  const std::int64_t heads = geometry.query_heads();
  const std::int64_t bytes = dtype_bytes(to_output.dtype);
  for (std::int64_t q = 0; q < attended; ++q) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::byte* from = host_output.data() + (q * heads + h) * geometry.value_dim() * bytes;
      for (std::int64_t i = 0; i < geometry.value_dim(); ++i)
        std::memcpy(to_output.at(q, h, i), from + i * bytes, static_cast<std::size_t>(bytes));
      if (!to_lse.empty())
        std::memcpy(to_lse.at(q, h), &host_lse[static_cast<std::size_t>(q * heads + h)], sizeof(float));
    }
  }
}

Status DeviceWorkspace::wait() {
  DefaultFloatEnvironment environment;
  Impl& work = *impl_;
  Status status = work.device->impl().finish();
  if (status.ok()) status = work.judge_scores();
  if (status.ok()) {
    work.write_rows();
    work.write_outputs();
    status = work.judge_outputs();
  }
  work.planned = work.attended = 0;
  return status;
}

}  // namespace seriatim
