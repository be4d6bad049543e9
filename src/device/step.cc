// One step: plan() and attend() check, copy in and enqueue; wait() judges and copies out.

#include <algorithm>
#include <cstring>

#include "attend/attend_admit.hpp"
#include "base/admit.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "device/workspace.hpp"
#include "seriatim/attend.hpp"
#include "step/admission.hpp"

namespace seriatim {
namespace {

using device::Kernel;

constexpr std::int64_t kBlockHeads = 16;  // BLOCK_HEADS of the kernels

Status invalid(std::string_view argument, std::string_view what, Place place = {}) {
  return Status::error(Code::kInvalidArgument, argument, formatted("{}: {}", argument, what), place);
}

// Every element as f32, dense: exact.
void widen(const ConstTensor& from, const device::HostArray<float>& to) {
  std::size_t next = 0;
  for (std::int64_t a = 0; a < from.shape[0]; ++a) {
    for (std::int64_t b = 0; b < from.shape[1]; ++b) {
      for (std::int64_t c = 0; c < from.shape[2]; ++c) to[next++] = load_element(from.at(a, b, c), from.dtype);
    }
  }
}

// The layer as the host's checks want to see it.
LayerView view_of(const Geometry& geometry, const device::DeviceLayer& layer) {
  LayerView view;
  view.geometry = &geometry;
  view.run = layer.run;
  return view;
}

Result<const device::DeviceLayer*> layer_of(const DeviceWorkspace::Impl& work, const DeviceSequence::Impl& sequence,
                                            std::int64_t layer) {
  if (sequence.memory.device != work.device) return invalid("sequence", "it is on another device than the workspace");
  if (layer < 0 || layer >= static_cast<std::int64_t>(sequence.layers.size())) {
    return invalid("layer", formatted("{} is not in 0..{}", layer, sequence.layers.size() - 1), {-1, layer});
  }
  const device::ShapeArgs shape = sequence.shape;
  if (std::memcmp(&shape, &work.shape, sizeof shape) != 0 || sequence.program != work.program) {
    return invalid("workspace", "made for another geometry than the sequence's");
  }
  return &sequence.layers[static_cast<std::size_t>(layer)];
}

Status admit_count(const DeviceWorkspace::Impl& work, std::int64_t count) {
  if (count <= work.max_queries) return {};
  return Status::error(Code::kCapacity, "workspace",
                       formatted("workspace: {} queries, made for {}", count, work.max_queries));
}

}  // namespace

Status DeviceWorkspace::Impl::launch_score(const device::DeviceLayer& layer, const device::Buffer& memory,
                                           bool weighted, bool exclude_nan) {
  Device::Impl& driver = device->impl();
  std::int64_t groups = 0;
  for (std::int64_t q = 0; q < planned; ++q)
    groups = std::max(groups, host_visible[static_cast<std::size_t>(q)] / geometry.group_tokens());
  const std::int32_t weights = weighted ? 1 : 0;
  const std::int32_t exclude = exclude_nan ? 1 : 0;
  return driver.launch(*program, Kernel::kScore, {device::groups_of(groups, driver.work_group), planned}, memory,
                       layer.in_use().groups.buffer, index_queries, head_weights, visible, scores, layer.args, shape,
                       score_stride, weights, exclude);
}

Status DeviceWorkspace::Impl::launch_select(bool exclude_nan) {
  const std::int32_t exclude = exclude_nan ? 1 : 0;
  return device->impl().launch(*program, Kernel::kSelect, {planned}, scores, visible, chosen, counts, first_nan, shape,
                               score_stride, exclude);
}

Status DeviceWorkspace::Impl::launch_row(const device::LayerArgs& layer) {
  Device::Impl& driver = device->impl();
  return driver.launch(*program, Kernel::kRow, {device::groups_of(geometry.row_capacity(), driver.work_group), planned},
                       chosen, counts, visible, rows, widths, layer, shape);
}

Status DeviceWorkspace::Impl::launch_attend(const device::DeviceLayer& layer, const device::Buffer& memory,
                                            bool has_sinks) {
  Device::Impl& driver = device->impl();
  const std::int64_t blocks = geometry.kv_heads() * device::groups_of(geometry.heads_per_kv(), kBlockHeads);
  if (Status s =
          driver.launch(*program, Kernel::kSplits, {splits, blocks, attended}, memory, layer.in_use().tokens.buffer,
                        queries, rows, widths, partials, layer.args, shape, splits);
      !s.ok()) {
    return s;
  }
  const std::int32_t sinks_given = has_sinks ? 1 : 0;
  const auto dtype = static_cast<std::int32_t>(to_output.dtype);
  return driver.launch(*program, Kernel::kFold, {geometry.query_heads(), attended}, partials, sinks, widths, output,
                       lse, overflow, shape, splits, sinks_given, dtype);
}

Status DeviceWorkspace::Impl::enqueue_plan(const device::DeviceLayer& layer, const device::Buffer& memory,
                                           bool weighted, bool exclude_nan) {
  Device::Impl& driver = device->impl();
  if (Status s = driver.write(index_queries, 0, host_index_queries.data(),
                              planned * geometry.index_heads() * geometry.index_dim() * 4);
      !s.ok())
    return s;
  if (weighted) {
    if (Status s = driver.write(head_weights, 0, host_head_weights.data(), planned * geometry.index_heads() * 4);
        !s.ok())
      return s;
  }
  if (Status s = driver.write(visible, 0, host_visible.data(), planned * 8); !s.ok()) return s;
  if (Status s = launch_score(layer, memory, weighted, exclude_nan); !s.ok()) return s;
  if (Status s = launch_select(exclude_nan); !s.ok()) return s;
  if (Status s = launch_row(layer.args); !s.ok()) return s;
  if (Status s = driver.read(first_nan, host_first_nan.data(), planned * 4); !s.ok()) return s;
  if (Status s = driver.read(widths, host_widths.data(), planned * 4); !s.ok()) return s;
  if (Status s = driver.read(rows, host_rows.data(), planned * geometry.row_capacity() * 4); !s.ok()) return s;
  return driver.flush();
}

Status DeviceWorkspace::Impl::enqueue_attend(const device::DeviceLayer& layer, const device::Buffer& memory,
                                             bool own_rows, bool has_sinks) {
  Device::Impl& driver = device->impl();
  const std::int64_t heads = geometry.query_heads();
  if (Status s = driver.write(queries, 0, host_queries.data(), attended * heads * geometry.head_dim() * 4); !s.ok())
    return s;
  if (has_sinks) {
    if (Status s = driver.write(sinks, 0, host_sinks.data(), heads * 4); !s.ok()) return s;
  }
  if (own_rows) {
    if (Status s = driver.write(rows, 0, given_rows.data(), attended * geometry.row_capacity() * 4); !s.ok()) return s;
    if (Status s = driver.write(widths, 0, given_widths.data(), attended * 4); !s.ok()) return s;
  }
  if (Status s = launch_attend(layer, memory, has_sinks); !s.ok()) return s;
  if (Status s = driver.read(output, host_output.data(),
                             attended * heads * geometry.value_dim() * dtype_bytes(to_output.dtype));
      !s.ok())
    return s;
  if (Status s = driver.read(lse, host_lse.data(), attended * heads * 4); !s.ok()) return s;
  if (Status s = driver.read(overflow, host_overflow.data(), attended * heads * 4); !s.ok()) return s;
  return driver.flush();
}

Status DeviceWorkspace::plan(const DeviceSequence& sequence, std::int64_t layer_number, const IndexQueries& queries,
                             NanPolicy nan, Rows rows) {
  DefaultFloatEnvironment environment;
  Impl& work = *impl_;
  const Geometry& geometry = work.geometry;
  if (work.planned >= 0) return invalid("workspace", "a plan is open already; wait() first");
  const auto layer = layer_of(work, sequence.impl(), layer_number);
  if (!layer.ok()) return layer.status();
  if (!(*layer)->indexed) return invalid("layer", "it has no index; attend over the rows of one that has");
  const std::int64_t heads = geometry.index_heads();
  if (Status s =
          admit_view("index_queries", queries.queries, geometry.index_dtype(), {-1, heads, geometry.index_dim()});
      !s.ok())
    return s;
  const std::int64_t count = queries.queries.shape[0];
  if (Status s = admit_count(work, count); !s.ok()) return s;
  if (!left_out(queries.head_weights)) {
    if (Status s = admit_view("index_head_weights", queries.head_weights, DType::kF32, {count, heads}); !s.ok())
      return s;
  }
  const auto visible = admit_positions(view_of(geometry, **layer), queries.positions, count);
  if (!visible.ok()) return visible.status();
  if (*visible > work.max_visible_tokens) {
    return Status::error(
        Code::kCapacity, "workspace",
        formatted("workspace: a query sees {} tokens, made for {}", *visible, work.max_visible_tokens));
  }
  if (count > 0 && (rows.positions == nullptr || rows.counts == nullptr || rows.stride < geometry.row_capacity())) {
    return invalid("rows",
                   formatted("no memory, or a stride of {} where {} is needed", rows.stride, geometry.row_capacity()));
  }
  widen(queries.queries, work.host_index_queries);
  if (!queries.head_weights.empty()) widen(queries.head_weights, work.host_head_weights);
  for (std::int64_t q = 0; q < count; ++q) {
    work.host_visible[static_cast<std::size_t>(q)] =
        queries.positions[static_cast<std::size_t>(q)] - (*layer)->run.anchor + 1;
  }
  work.planned = count;
  work.nan = nan;
  work.to_rows = rows;
  const Status status = work.enqueue_plan(**layer, sequence.impl().memory.buffer, !queries.head_weights.empty(),
                                          nan == NanPolicy::kExclude);
  return status.ok() ? status : work.drop(status);
}

Status DeviceWorkspace::attend(const DeviceSequence& sequence, std::int64_t layer_number, const AttendQueries& queries,
                               std::optional<Rows> rows, Tensor output, Tensor lse) {
  DefaultFloatEnvironment environment;
  Impl& work = *impl_;
  const Geometry& geometry = work.geometry;
  const std::int64_t heads = geometry.query_heads();
  if (work.attended >= 0) return invalid("workspace", "an attend is open already; wait() first");
  const auto layer = layer_of(work, sequence.impl(), layer_number);
  if (!layer.ok()) return layer.status();
  if (Status s = admit_view("queries", queries.queries, geometry.kv_dtype(), {-1, heads, geometry.head_dim()}); !s.ok())
    return s;
  const std::int64_t count = queries.queries.shape[0];
  if (Status s = admit_count(work, count); !s.ok()) return s;
  if (!is_float(output.dtype)) return invalid("output", formatted("dtype {}", dtype_name(output.dtype)));
  if (Status s = admit_view("output", output, output.dtype, {count, heads, geometry.value_dim()}); !s.ok()) return s;
  if (!left_out(lse)) {
    if (Status s = admit_view("lse", lse, DType::kF32, {count, heads}); !s.ok()) return s;
  }
  if (Status s = admit_sinks(geometry, queries.sinks); !s.ok()) return s;
  const LayerView view = view_of(geometry, **layer);
  if (const auto seen = admit_positions(view, queries.positions, count); !seen.ok()) return seen.status();
  if (!rows && work.planned != count)
    return invalid("rows", formatted("none given, and no open plan of {} queries", count));
  for (std::int64_t q = 0; q < count; ++q) {
    const auto at = static_cast<std::size_t>(q);
    const VisibleRun run = visible_run(view, queries.positions[at]);
    if (!rows && run.tokens != work.host_visible[at])
      return invalid("positions", formatted("query {} stands elsewhere than in the plan", q), {q, -1});
    if (rows && (rows->counts[q] < 0 || rows->counts[q] > rows->stride)) {
      return invalid("rows", formatted("a count of {} in a stride of {}", rows->counts[q], rows->stride), {q, -1});
    }
    if (rows && rows->counts[q] > geometry.row_capacity()) {
      return Status::error(
          Code::kCapacity, "rows",
          formatted("rows: {} entries of query {}, the device takes {}", rows->counts[q], q, geometry.row_capacity()),
          {q, -1});
    }
    if (Status s = admit_attend(view, run, row_of(queries.queries, q),
                                rows ? rows->row(q) : std::span<const std::int32_t>{}, q);
        !s.ok())
      return s;
  }
  widen(queries.queries, work.host_queries);
  std::copy(queries.sinks.begin(), queries.sinks.end(), work.host_sinks.begin());
  for (std::int64_t q = 0; rows && q < count; ++q) {
    const auto row = rows->row(q);
    std::copy(row.begin(), row.end(), work.given_rows.begin() + q * geometry.row_capacity());
    work.given_widths[static_cast<std::size_t>(q)] = rows->counts[q];
  }
  work.attended = count;
  work.to_output = output;
  work.to_lse = lse;
  const Status status =
      work.enqueue_attend(**layer, sequence.impl().memory.buffer, rows.has_value(), !queries.sinks.empty());
  return status.ok() ? status : work.drop(status);
}

Status DeviceWorkspace::Impl::judge_scores() const {
  for (std::int64_t q = 0; nan == NanPolicy::kRefuse && q < planned; ++q) {
    const std::int32_t group = host_first_nan[static_cast<std::size_t>(q)];
    if (group < 0) continue;
    return Status::error(Code::kNotANumber, "scores", formatted("scores: group {} of query {} is NaN", group, q),
                         {q, group});
  }
  return {};
}

Status DeviceWorkspace::Impl::judge_outputs() const {
  const std::int64_t heads = geometry.query_heads();
  const auto end = host_overflow.begin() + std::max<std::int64_t>(attended, 0) * heads;
  const auto bad = std::find_if(host_overflow.begin(), end, [](std::int32_t flag) { return flag != 0; });
  if (bad == end) return {};
  const std::int64_t place = bad - host_overflow.begin();
  return attend_fault(Code::kOverflow, "output",
                      formatted("head {}: a logit passes f32, or an output its dtype", place % heads),
                      {place / heads, place % heads});
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

void DeviceWorkspace::Impl::account() {
  done.queries += std::max<std::int64_t>(planned, 0);
  for (std::int64_t q = 0; q < planned; ++q) {
    const std::int64_t seen = host_visible[static_cast<std::size_t>(q)];
    const std::int64_t width = host_widths[static_cast<std::size_t>(q)];
    done.dense_rows += width == seen ? 1 : 0;
    done.groups_scored += needs_scores(seen) ? geometry.groups(seen) : 0;
    done.groups_selected += (width - geometry.tail_tokens(seen)) / geometry.group_tokens();
    done.row_tokens += width;
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
    work.account();
    status = work.judge_outputs();
  }
  work.planned = -1;
  work.attended = -1;
  return status;
}

}  // namespace seriatim
