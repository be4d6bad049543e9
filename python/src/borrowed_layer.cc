#include "borrowed_layer.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>

#include "borrowed_tensors.hpp"

namespace seriatim::python {
namespace {

// No more than this is the magnitude of a finite element. That of an f16 is not looked at: all are small.
float magnitude_bound(const std::byte* element, DType dtype) {
  if (dtype == DType::kF16) return 65504.0f;
  std::uint32_t bits = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&bits, element, sizeof bits);
  } else {
    std::uint16_t half = 0;
    std::memcpy(&half, element, sizeof half);
    bits = static_cast<std::uint32_t>(half) << 16;
  }
  return std::fabs(std::bit_cast<float>(bits));
}

// One pooled group that arrived finished: dims become the strided elements of its lane. Gives a bound on its
// magnitudes.
float store_lane(const Geometry& geometry, const std::byte* key, std::byte* lane) {
  const std::int64_t bytes = dtype_bytes(geometry.index_dtype());
  float largest = 0.0f;
  for (std::int64_t i = 0; i < geometry.index_dim(); ++i) {
    std::memcpy(lane + i * kPanel * bytes, key + i * bytes, static_cast<std::size_t>(bytes));
    largest = std::max(largest, magnitude_bound(key + i * bytes, geometry.index_dtype()));
  }
  return largest;
}

}  // namespace

Status check_finite(std::string_view argument, const ConstTensor& tensor) {
  if (!is_float(tensor.dtype)) return misfit(argument, "dtype " + std::string(dtype_name(tensor.dtype)));
  const bool wide = tensor.dtype == DType::kF32;
  const std::uint32_t exponent = wide ? 0x7F800000u : tensor.dtype == DType::kBf16 ? 0x7F80u : 0x7C00u;
  const std::int64_t extent = tensor.shape[3];
  for (std::int64_t i0 = 0; i0 < tensor.shape[0]; ++i0) {
    for (std::int64_t i1 = 0; i1 < tensor.shape[1]; ++i1) {
      for (std::int64_t i2 = 0; i2 < tensor.shape[2]; ++i2) {
        std::uint32_t faults = 0;
        const std::byte* at = tensor.at(i0, i1, i2);
        for (std::int64_t i = 0; i < extent; ++i, at += tensor.stride_bytes[3]) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, at, wide ? 4 : 2);
          if constexpr (std::endian::native == std::endian::big) bits = wide ? bits : bits >> 16;
          faults += (bits & exponent) == exponent ? 1u : 0u;
        }
        if (faults != 0) {
          return Status::error(Code::kNotFinite, argument, std::string(argument) + ": a value that is not finite",
                               {i0, (i1 * tensor.shape[2] + i2) * extent});
        }
      }
    }
  }
  return {};
}

Result<std::unique_ptr<BorrowedLayer>> BorrowedLayer::create(GeometryOptions options, std::vector<float> norm_weight,
                                                             std::shared_ptr<Executor> executor, Kernels kernels) {
  Result<Geometry> geometry = Geometry::admit(std::move(options));
  if (!geometry.ok()) return geometry.status();
  if (norm_weight.empty()) norm_weight.assign(static_cast<std::size_t>(geometry->index_dim()), 0.0f);
  if (static_cast<std::int64_t>(norm_weight.size()) != geometry->index_dim())
    return misfit("norm_weight", "not one element per index dim");
  for (const float w : norm_weight) {
    if (!std::isfinite(w))
      return Status::error(Code::kNotFinite, "norm_weight", "norm_weight: an element that is not finite");
  }
  std::unique_ptr<BorrowedLayer> layer(
      new (std::nothrow) BorrowedLayer(std::move(*geometry), std::move(norm_weight), std::move(executor), kernels));
  if (layer == nullptr) return Status::error(Code::kOutOfMemory, "layer", "layer: no memory");
  for (int worker = 0; worker < layer->executor_->concurrency(); ++worker) {
    Result<Pooler> pooler = Pooler::create(layer->geometry_, kernels);
    if (!pooler.ok()) return pooler.status();
    layer->poolers_.push_back(std::move(*pooler));
  }
  return layer;
}

Result<float> BorrowedLayer::pool(const PoolCall& call) {
  const std::lock_guard lock(turn_);
  const DType dtype = geometry_.index_dtype();
  const std::int64_t r = geometry_.group_tokens();
  const std::int64_t dim = geometry_.index_dim();
  const std::int64_t sequences = call.raw.shape[0];
  const std::int64_t slots = call.raw.shape[1];
  if (Status s = admit("raw", call.raw, dtype, {-1, -1, dim}); !s.ok()) return s;
  if (Status s = admit("panels", call.panels, dtype, {sequences, -1, dim, kPanel}); !s.ok()) return s;
  if (!dense_from(call.raw, 1)) return misfit("raw", "the tokens of a sequence are not dense");
  if (!dense_from(call.panels, 1)) return misfit("panels", "the panels of a sequence are not dense");
  if (!call.coordinates.empty()) {
    if (Status s = admit("coordinates", call.coordinates, DType::kI64, {3, sequences, slots}); !s.ok()) return s;
  }
  if (Status s = admit_runs(call.runs, sequences, slots); !s.ok()) return s;
  if (static_cast<std::int64_t>(call.pooled_groups.size()) != sequences)
    return misfit("pooled_groups", "not one per sequence");

  float largest = 0.0f;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const std::int64_t anchor = call.runs.first[static_cast<std::size_t>(b)];
    const std::int64_t groups = geometry_.groups(call.runs.last[static_cast<std::size_t>(b)] - anchor);
    const std::int64_t from = call.pooled_groups[static_cast<std::size_t>(b)];
    if (from < 0 || groups > call.panels.shape[1] * kPanel)
      return misfit("panels", "no room for group " + std::to_string(groups - 1), {b, -1});
    if (from >= groups) continue;
    const std::int64_t first_panel = from / kPanel;
    std::vector<float> magnitudes(static_cast<std::size_t>((groups - 1) / kPanel - first_panel + 1));
    std::atomic<bool> bad_position{false};
    for_units(*executor_, static_cast<std::int64_t>(magnitudes.size()), [&](std::int64_t unit, int worker) {
      const std::int64_t panel = first_panel + unit;
      const std::int64_t low = std::max(from, panel * kPanel);
      const std::int64_t high = std::min(groups, (panel + 1) * kPanel);
      std::array<Coordinates, kPanel> at;
      for (std::int64_t g = low; g < high; ++g) {
        for (std::size_t axis = 0; axis < 3; ++axis) {
          std::int64_t position = anchor + g * r;
          if (!call.coordinates.empty())
            std::memcpy(&position, call.coordinates.at(static_cast<std::int64_t>(axis), b, anchor + g * r),
                        sizeof position);
          if (position < 0 || position >= Geometry::kPositions) bad_position = true;
          at[static_cast<std::size_t>(g - low)][axis] = static_cast<std::int32_t>(position);
        }
      }
      const std::byte* raw = call.raw.at(b, anchor + low * r);
      std::byte* lane = call.panels.at(b, panel, 0, low % kPanel);
      float& magnitude = magnitudes[static_cast<std::size_t>(unit)];
      if (geometry_.pooling() == Pooling::kNone) {
        for (std::int64_t g = low; g < high; ++g)
          magnitude = std::max(
              magnitude, store_lane(geometry_, call.raw.at(b, anchor + g), call.panels.at(b, panel, 0, g % kPanel)));
      } else {
        magnitude = poolers_[static_cast<std::size_t>(worker)].pool(norm_weight_.data(), raw, high - low,
                                                                    anchor + low * r, at.data(), lane);
      }
    });
    if (bad_position) return misfit("coordinates", "a position outside 0 .. 2^31 - 1", {b, -1});
    for (std::size_t unit = 0; unit < magnitudes.size(); ++unit) {
      if (geometry_.pooling() != Pooling::kNone && !std::isfinite(magnitudes[unit])) {
        return Status::error(Code::kNotFinite, "raw", "raw: index keys or their mean are not finite",
                             {b, std::max(from, (first_panel + static_cast<std::int64_t>(unit)) * kPanel)});
      }
      largest = std::max(largest, magnitudes[unit]);
    }
  }
  return largest;
}

Status BorrowedLayer::make_workspace(std::int64_t visible_tokens) {
  if (workspace_ && workspace_tokens_ >= visible_tokens) return {};
  const std::int64_t tokens = std::max<std::int64_t>(4096, visible_tokens + visible_tokens / 4);
  Result<seriatim::Engine> workspace = seriatim::Engine::host(*executor_, kernels_);
  if (!workspace.ok()) return workspace.status();
  workspace_.emplace(std::move(*workspace));
  workspace_tokens_ = tokens;
  return {};
}

Status BorrowedLayer::attend(const AttendCall& call) {
  const std::lock_guard lock(turn_);
  const DType kv = geometry_.kv_dtype();
  const std::int64_t sequences = call.queries.shape[0];
  const std::int64_t queries = call.queries.shape[1];
  const std::int64_t heads = geometry_.query_heads();
  const std::int64_t slots = call.keys.shape[2];
  if (Status s = admit("queries", call.queries, kv, {-1, -1, heads, geometry_.head_dim()}); !s.ok()) return s;
  if (Status s = admit("index_queries", call.index_queries, geometry_.index_dtype(),
                       {sequences, queries, geometry_.index_heads(), geometry_.index_dim()});
      !s.ok())
    return s;
  if (!call.head_weights.empty()) {
    if (Status s = admit("head_weights", call.head_weights, DType::kF32, {sequences, queries, geometry_.index_heads()});
        !s.ok())
      return s;
  }
  if (Status s = admit("keys", call.keys, kv, {sequences, geometry_.kv_heads(), -1, geometry_.head_dim()}); !s.ok())
    return s;
  if (!dense_from(call.keys, 2)) return misfit("keys", "the slots of a head are not dense");
  if (call.values.empty() != geometry_.values_alias_keys())
    return misfit("values", "absent exactly when they alias the keys");
  if (!call.values.empty()) {
    if (Status s = admit("values", call.values, kv, {sequences, geometry_.kv_heads(), slots, geometry_.value_dim()});
        !s.ok())
      return s;
    if (!dense_from(call.values, 2)) return misfit("values", "the slots of a head are not dense");
  }
  if (Status s = admit("panels", call.panels, geometry_.index_dtype(), {sequences, -1, geometry_.index_dim(), kPanel});
      !s.ok())
    return s;
  if (!dense_from(call.panels, 1)) return misfit("panels", "the panels of a sequence are not dense");
  if (Status s = admit("output", call.output, call.output.dtype, {sequences, queries, heads, geometry_.value_dim()});
      !s.ok())
    return s;
  if (!call.rows.empty()) {
    if (Status s = admit("rows", call.rows, DType::kI32, {sequences, queries, geometry_.row_capacity()}); !s.ok())
      return s;
    if (Status s = admit("counts", call.counts, DType::kI32, {sequences, queries}); !s.ok()) return s;
    if (!dense_from(call.rows, 1) || !dense_from(call.counts, 1)) return misfit("rows", "not dense");
  }
  if (queries > slots) return misfit("queries", "more of them than slots");
  if (Status s = admit_runs(call.runs, sequences, slots); !s.ok()) return s;
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < sequences; ++b)
    longest =
        std::max(longest, call.runs.last[static_cast<std::size_t>(b)] - call.runs.first[static_cast<std::size_t>(b)]);
  if (Status s = make_workspace(longest); !s.ok()) return s;
  for (std::int64_t b = 0; b < sequences; ++b) {
    if (Status s = attend_sequence(call, b); !s.ok()) {
      return Status::error(s.code(), s.argument(), std::string(s.message()) + " (sequence " + std::to_string(b) + ")",
                           {b, s.place().row});
    }
  }
  return {};
}

Status BorrowedLayer::view_keys(const ConstTensor& keys, const ConstTensor& values, const std::byte* const* page,
                                std::int64_t b, VisibleRun run, LayerView& layer) const {
  // Page, key block and value block in one: a page of this sequence begins at its first key, and the values lie where
  // they lie, at some distance.
  const std::int64_t key_bytes = geometry_.head_dim() * dtype_bytes(geometry_.kv_dtype());
  const std::int64_t value_bytes = geometry_.value_dim() * dtype_bytes(geometry_.kv_dtype());
  const bool one_head = geometry_.kv_heads() == 1;
  layer.geometry = &geometry_;
  layer.run = run;
  layer.pages = page;
  layer.page_tokens = one_head ? keys.shape[2] : keys.stride_bytes[1] / key_bytes;
  layer.first_slot = run.anchor;
  layer.set_cache_strides();
  if (!one_head && keys.stride_bytes[1] % key_bytes != 0) return misfit("keys", "heads are not whole tokens apart");
  if (values.empty()) return {};
  const std::int64_t apart = one_head ? layer.page_tokens * value_bytes : values.stride_bytes[1];
  if (apart != layer.page_tokens * value_bytes)
    return misfit("values", "heads are not as many tokens apart as those of the keys");
  layer.value_offset_bytes =
      static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(values.at(b)) - reinterpret_cast<std::intptr_t>(*page));
  return {};
}

Status BorrowedLayer::view_panels(const ConstTensor& panels, float max_abs, const std::byte* const* page,
                                  LayerView& layer) const {
  layer.pooled.pages = page;
  layer.pooled.page_groups = panels.shape[1] * kPanel;
  layer.pooled.groups = geometry_.groups(layer.run.tokens);
  layer.pooled.dim = geometry_.index_dim();
  layer.pooled.dtype = geometry_.index_dtype();
  layer.pooled.max_abs = max_abs;
  if (layer.pooled.groups > layer.pooled.page_groups) return misfit("panels", "fewer than the sequence has groups");
  return {};
}

Status BorrowedLayer::attend_sequence(const AttendCall& call, std::int64_t b) {
  const std::int64_t slots = call.keys.shape[2];
  const std::int64_t queries = call.queries.shape[1];
  const std::int64_t first = call.runs.first[static_cast<std::size_t>(b)];
  const std::int64_t last = call.runs.last[static_cast<std::size_t>(b)];

  const std::byte* const page = call.keys.at(b);
  LayerView layer;
  if (Status s = view_keys(call.keys, call.values, &page, b, {first, last - first}, layer); !s.ok()) return s;
  const std::byte* const panels = call.panels.at(b);
  if (Status s = view_panels(call.panels, call.panels_max_abs, &panels, layer); !s.ok()) return s;

  const std::int64_t real_first = std::clamp<std::int64_t>(first - (slots - queries), 0, queries);
  const std::int64_t real_last = std::clamp<std::int64_t>(last - (slots - queries), real_first, queries);
  const Tensor output = row_of(call.output, b);
  zero_fill(slice(output, 0, real_first));
  zero_fill(slice(output, real_last, queries - real_last));
  if (!call.rows.empty()) {
    std::memset(call.rows.at(b), 0xFF, static_cast<std::size_t>(queries * geometry_.row_capacity() * 4));
    std::memset(call.counts.at(b), 0, static_cast<std::size_t>(queries * 4));
  }
  for (std::int64_t q = real_first; q < real_last; q += kBlockQueries) {
    if (Status s = attend_block(call, layer, b, q, std::min(kBlockQueries, real_last - q)); !s.ok()) return s;
  }
  return {};
}

Status BorrowedLayer::attend_block(const AttendCall& call, const LayerView& layer, std::int64_t b, std::int64_t first,
                                   std::int64_t count) {
  const std::int64_t stride = geometry_.row_capacity();
  const std::int64_t first_position = call.keys.shape[2] - call.queries.shape[1] + first;
  positions_.resize(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) positions_[static_cast<std::size_t>(i)] = first_position + i;
  Rows rows;
  rows.stride = stride;
  if (call.rows.empty()) {
    rows_.resize(static_cast<std::size_t>(count * stride));
    counts_.resize(static_cast<std::size_t>(count));
    rows.positions = rows_.data();
    rows.counts = counts_.data();
  } else {
    rows.positions = reinterpret_cast<std::int32_t*>(call.rows.at(b, first));
    rows.counts = reinterpret_cast<std::int32_t*>(call.counts.at(b, first));
  }
  IndexQueries index_queries;
  index_queries.queries = slice(row_of(call.index_queries, b), first, count);
  if (!call.head_weights.empty()) index_queries.head_weights = slice(row_of(call.head_weights, b), first, count);
  index_queries.positions = positions_;
  if (Status s = workspace_->plan(layer, index_queries, NanPolicy::kRefuse, rows); !s.ok()) return s;
  AttendQueries attend_queries;
  attend_queries.queries = slice(row_of(call.queries, b), first, count);
  attend_queries.positions = positions_;
  const Tensor lse = call.lse.empty() ? Tensor{} : slice(row_of(call.lse, b), first, count);
  if (Status s = workspace_->attend(layer, attend_queries, rows, slice(row_of(call.output, b), first, count), lse);
      !s.ok())
    return s;
  done_ = workspace_->done();
  return {};
}

}  // namespace seriatim::python
