#include "step/halves.hpp"

#include <algorithm>
#include <limits>

#include "attend/attend_kernels.hpp"
#include "seriatim/attend.hpp"
#include "step/attend_scratch.hpp"
#include "step/first_fault.hpp"
#include "step/for_units.hpp"

namespace seriatim {
namespace {

// A split past the row's end, as one kv head has it.
void write_empty(const Geometry& geometry, std::int64_t kv_head, float* partial) {
  const PartialParts<float> parts(geometry, partial);
  const std::int64_t first = kv_head * geometry.heads_per_kv();
  std::fill_n(parts.max + first, geometry.heads_per_kv(), -std::numeric_limits<float>::infinity());
  std::fill_n(parts.den + first, geometry.heads_per_kv(), 0.0f);
  std::fill_n(parts.sums + first * geometry.value_dim(), geometry.heads_per_kv() * geometry.value_dim(), 0.0f);
}

float* spare_of(const Geometry& geometry, WorkerScratch& worker) {
  return worker.attend.data() + attend_partial_place(geometry);
}

}  // namespace

// A unit is a run of one query's splits for one kv head: all of them where the others keep every worker busy.
void attend_partials_of(const PartialBatch& batch, HostScratch& work) {
  const Geometry& geometry = batch.asked.geometry();
  const AttendAsk& ask = batch.asked.asks.front();
  const std::int64_t kv_heads = geometry.kv_heads();
  const AttendKernels& kernels = attend_kernels(work.kernels);
  const std::int64_t heads = batch.asked.table.queries() * kv_heads;
  const std::int64_t wanted = (2 * work.executor.concurrency() + heads - 1) / std::max<std::int64_t>(heads, 1);
  const std::int64_t length = std::max<std::int64_t>(batch.splits / std::max<std::int64_t>(wanted, 1), 1);
  const std::int64_t runs = (batch.splits + length - 1) / length;
  for_units(work.executor, heads * runs, [&](std::int64_t unit, int worker) {
    const std::int64_t query = unit / kv_heads / runs;
    const std::int64_t begin = unit / kv_heads % runs * length;  // of the partials
    const std::int64_t count = std::min(length, batch.splits - begin);
    float* partials = batch.partials.data() + (query * batch.splits + begin) * attend_partial_floats(geometry);
    const std::int64_t kv_head = unit % kv_heads;
    const std::int64_t row = batch.asked.row_of(query, kv_head);
    BlockQuery one{row_of(ask.queries.queries, query), batch.asked.rows.row(row), {}, {}, -1,
                   batch.asked.rows.row_biases(row)};
    const std::int64_t first = batch.first_split + begin;
    const std::int64_t of_row = (static_cast<std::int64_t>(one.row.size()) + kSplitEntries - 1) / kSplitEntries;
    const std::int64_t there = std::clamp<std::int64_t>(of_row - first, 0, count);
    for (std::int64_t s = there; s < count; ++s)
      write_empty(geometry, kv_head, partials + s * attend_partial_floats(geometry));
    if (there == 0) return;
    WorkerScratch& scratch = work.workers[static_cast<std::size_t>(worker)];
    kernels.split_partials({ask.layer, kv_head, {&one, 1}, {}, scratch.attend.data()}, first, there,
                           spare_of(geometry, scratch), partials);
  });
}

// A unit is one query and one kv head.
std::int64_t fold_partials_of(const FoldBatch& batch, HostScratch& work) {
  const Geometry& geometry = batch.geometry;
  const std::int64_t kv_heads = geometry.kv_heads();
  const AttendKernels& kernels = attend_kernels(work.kernels);
  LayerView only_geometry;
  only_geometry.geometry = &geometry;
  FirstFault overflow;
  for_units(work.executor, batch.queries() * kv_heads, [&](std::int64_t unit, int worker) {
    const std::int64_t query = unit / kv_heads;
    BlockQuery one;
    if (!batch.output.empty()) one.output = row_of(batch.output, query);
    if (!batch.lse.empty()) {
      one.lse = {reinterpret_cast<float*>(batch.lse.at(query)), static_cast<std::size_t>(geometry.query_heads())};
    }
    WorkerScratch& scratch = work.workers[static_cast<std::size_t>(worker)];
    const float* partials = batch.partials.data() + query * batch.splits * attend_partial_floats(geometry);
    AttendBlock block{&only_geometry, unit % kv_heads, {&one, 1}, batch.sinks, scratch.attend.data()};
    if (!batch.states.empty()) block.state = batch.states.data() + query * attend_partial_floats(geometry);
    kernels.fold_partials(block, partials, batch.splits, spare_of(geometry, scratch));
    if (one.overflow >= 0) overflow.note(query * geometry.query_heads() + one.overflow);
  });
  return overflow.place();
}

}  // namespace seriatim
