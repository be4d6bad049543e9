#include "seriatim/index.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "base/admit.hpp"
#include "base/half.hpp"
#include "index/index_ref.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

Status admit_norm_weight(const Geometry& geometry, const ConstTensor& weight) {
  if (geometry.pooling() == Pooling::kNone) return {};
  if (Status s = admit_view("index_norm_weight", weight, DType::kF32, {geometry.index_dim()}); !s.ok()) return s;
  if (weight.stride_bytes[0] != dtype_bytes(DType::kF32) || reinterpret_cast<std::uintptr_t>(weight.data) % alignof(float) != 0) {
    return Status::error(Code::kInvalidArgument, "index_norm_weight", "index_norm_weight: not contiguous or not aligned");
  }
  return admit_finite("index_norm_weight", weight);
}

std::span<const float> as_floats(const ConstTensor& weight) {
  return {reinterpret_cast<const float*>(weight.data), static_cast<std::size_t>(weight.shape[0])};
}

// The coordinates at which a vector of an admitted position is rotated.
Result<Coordinates> coordinates_at(const Geometry& geometry, std::int64_t position, const Coordinates* given,
                                   std::int64_t row) {
  if (geometry.rope_axes().empty() || geometry.pooling() == Pooling::kNone) {
    const auto p = static_cast<std::int32_t>(position);
    return Coordinates{p, p, p};
  }
  if (given == nullptr) {
    return Status::error(Code::kInvalidArgument, "coordinates", "coordinates: needed because the geometry names rope_axes");
  }
  for (const std::int32_t c : *given) {
    if (c < 0) {
      return Status::error(Code::kInvalidArgument, "coordinates", fmt::format("coordinates: {} of row {} is negative", c, row), {row, -1});
    }
  }
  return *given;
}

std::optional<std::vector<float>> make_scratch(std::int64_t values) {
  try {
    return std::vector<float>(static_cast<std::size_t>(values));
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

Status out_of_memory() { return Status::error(Code::kOutOfMemory, "scratch", "scratch: the system refused memory"); }

}  // namespace

std::int64_t panel_bytes(const Geometry& geometry, std::int64_t groups) {
  const std::int64_t panels = groups / kPanel + (groups % kPanel != 0 ? 1 : 0);
  return panels * kPanel * geometry.index_dim() * dtype_bytes(geometry.index_dtype());
}

Status pool_keys(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw, std::int64_t first_position,
                 const Coordinates* coordinates, Tensor pooled) {
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t tokens = geometry.group_tokens();
  if (Status s = admit_norm_weight(geometry, norm_weight); !s.ok()) return s;
  if (Status s = admit_view("index_keys", raw, geometry.index_dtype(), {-1, dim}); !s.ok()) return s;
  const std::int64_t groups = raw.shape[0] / tokens;
  if (Status s = admit_view("pooled", pooled, geometry.index_dtype(), {groups, dim}); !s.ok()) return s;
  if (first_position < 0 || first_position > Geometry::kPositions - raw.shape[0]) {
    return Status::error(Code::kInvalidArgument, "first_position",
                         fmt::format("first_position: {} tokens from {} are not in 0..{}", raw.shape[0], first_position, Geometry::kPositions - 1));
  }
  if (Status s = admit_finite("index_keys", raw); !s.ok()) return s;
  for (std::int64_t g = 0; g < groups; ++g) {
    const Coordinates* given = coordinates == nullptr ? nullptr : coordinates + g * tokens;
    if (auto at = coordinates_at(geometry, first_position + g * tokens, given, g * tokens); !at.ok()) return at.status();
  }
  auto values = make_scratch(dim);
  if (!values) return out_of_memory();
  for (std::int64_t g = 0; g < groups; ++g) {
    ConstTensor group = raw;
    group.data = raw.at(g * tokens);
    group.shape[0] = tokens;
    const Coordinates* given = coordinates == nullptr ? nullptr : coordinates + g * tokens;
    const Coordinates at = *coordinates_at(geometry, first_position + g * tokens, given, g * tokens);
    pool_group_ref(geometry, as_floats(norm_weight), group, at, values->data());
    for (std::int64_t i = 0; i < dim; ++i) store_element(pooled.at(g, i), pooled.dtype, (*values)[static_cast<std::size_t>(i)]);
  }
  return {};
}

Status pack_pooled_keys(const Geometry& geometry, ConstTensor pooled, std::byte* panels) {
  const std::int64_t dim = geometry.index_dim();
  if (Status s = admit_view("pooled", pooled, geometry.index_dtype(), {-1, dim}); !s.ok()) return s;
  const std::int64_t groups = pooled.shape[0];
  const std::int64_t element_bytes = dtype_bytes(pooled.dtype);
  if (groups == 0) return {};
  if (panels == nullptr) return Status::error(Code::kInvalidArgument, "panels", "panels: no data");
  std::memset(panels, 0, static_cast<std::size_t>(panel_bytes(geometry, groups)));
  for (std::int64_t g = 0; g < groups; ++g) {
    std::byte* lane = panels + (g / kPanel * (kPanel * dim) + g % kPanel) * element_bytes;
    for (std::int64_t i = 0; i < dim; ++i) {
      std::memcpy(lane + i * kPanel * element_bytes, pooled.at(g, i), static_cast<std::size_t>(element_bytes));
    }
  }
  return {};
}

Status prepare_index_queries(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw,
                             const std::int64_t* positions, const Coordinates* coordinates, Tensor prepared) {
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t heads = geometry.index_heads();
  if (Status s = admit_norm_weight(geometry, norm_weight); !s.ok()) return s;
  if (Status s = admit_view("index_queries", raw, geometry.index_dtype(), {-1, heads, dim}); !s.ok()) return s;
  const std::int64_t queries = raw.shape[0];
  if (Status s = admit_view("prepared", prepared, geometry.index_dtype(), {queries, heads, dim}); !s.ok()) return s;
  if (queries > 0 && positions == nullptr) {
    return Status::error(Code::kInvalidArgument, "positions", "positions: no data");
  }
  if (Status s = admit_finite("index_queries", raw); !s.ok()) return s;
  for (std::int64_t q = 0; q < queries; ++q) {
    if (positions[q] < 0 || positions[q] >= Geometry::kPositions) {
      return Status::error(Code::kInvalidArgument, "positions",
                           fmt::format("positions: {} of row {} is not in 0..{}", positions[q], q, Geometry::kPositions - 1), {q, -1});
    }
    if (auto at = coordinates_at(geometry, positions[q], coordinates == nullptr ? nullptr : coordinates + q, q); !at.ok()) {
      return at.status();
    }
  }
  auto values = make_scratch(dim);
  if (!values) return out_of_memory();
  for (std::int64_t q = 0; q < queries; ++q) {
    const Coordinates at = *coordinates_at(geometry, positions[q], coordinates == nullptr ? nullptr : coordinates + q, q);
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < dim; ++i) (*values)[static_cast<std::size_t>(i)] = load_element(raw.at(q, h, i), raw.dtype);
      if (geometry.pooling() == Pooling::kMean) norm_and_rotate_ref(geometry, as_floats(norm_weight), at, values->data());
      for (std::int64_t i = 0; i < dim; ++i) store_element(prepared.at(q, h, i), prepared.dtype, (*values)[static_cast<std::size_t>(i)]);
    }
  }
  return {};
}

}  // namespace seriatim
