#include "seriatim/index.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <vector>

#include "base/admit.hpp"
#include "base/float_environment.hpp"
#include "base/format.hpp"
#include "base/half.hpp"
#include "index/index_ref.hpp"
#include "index/pool_kernels.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

Status admit_norm_weight(const Geometry& geometry, const ConstTensor& weight) {
  if (geometry.finished_keys()) return {};
  if (Status s = admit_view("index_norm_weight", weight, DType::kF32, {geometry.index_dim()}); !s.ok()) return s;
  if (weight.stride_bytes[0] != dtype_bytes(DType::kF32) ||
      reinterpret_cast<std::uintptr_t>(weight.data) % alignof(float) != 0) {
    return Status::error(Code::kInvalidArgument, "index_norm_weight",
                         "index_norm_weight: not contiguous or not aligned");
  }
  return admit_finite("index_norm_weight", weight);
}

std::span<const float> as_floats(const ConstTensor& weight) {
  return {reinterpret_cast<const float*>(weight.data), static_cast<std::size_t>(weight.shape[0])};
}

// The coordinates at which a vector of an admitted position is rotated.
Result<Coordinates> coordinates_at(const Geometry& geometry, std::int64_t position, const Coordinates* given,
                                   std::int64_t row) {
  if (geometry.rope_axes().empty() || geometry.finished_keys()) {
    const auto p = static_cast<std::int32_t>(position);
    return Coordinates{p, p, p};
  }
  if (given == nullptr) {
    return Status::error(Code::kInvalidArgument, "coordinates",
                         "coordinates: needed because the geometry names rope_axes");
  }
  for (const std::int32_t c : *given) {
    if (c < 0) {
      return Status::error(Code::kInvalidArgument, "coordinates",
                           formatted("coordinates: {} of row {} is negative", c, row), {row, -1});
    }
  }
  return *given;
}

// Groups of vectors of any strides through the kernels, and whatever the kernels do not take through the definition.
class Vectors {
 public:
  // Nothing if the system refuses memory.
  static std::optional<Vectors> make(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight,
                                     std::int64_t tokens) {
    try {
      Vectors vectors(kernels, geometry, norm_weight, tokens);
      vectors.scratch_.resize(static_cast<std::size_t>(pool_scratch_floats(geometry)));
      return vectors;
    } catch (const std::bad_alloc&) {
      return std::nullopt;
    }
  }

  // Takes   at most kPoolGroups groups; strides in bytes, of a token and an element, and of a group and an element.
  void pool(const std::byte* raw, std::int64_t token_stride, std::int64_t element_stride, std::int64_t groups,
            const Coordinates* at, std::byte* pooled, std::int64_t group_stride, std::int64_t dim_stride) {
    const bool mean = geometry_.pooling() == Pooling::kMean;
    const bool dense = element_stride == dtype_bytes(geometry_.index_dtype()) || geometry_.index_dim() == 1;
    if (mean && dense) {
      kernels_.pool({&geometry_, norm_weight_.data(), raw, token_stride, tokens_, groups, at, scratch_.data(), pooled,
                     group_stride, dim_stride});
      return;
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      ConstTensor group =
          dense_view(raw + g * tokens_ * token_stride, geometry_.index_dtype(), {tokens_, geometry_.index_dim()});
      group.stride_bytes = {token_stride, element_stride, 0, 0};
      pool_vector_ref(geometry_, norm_weight_, group, at[g], scratch_.data());
      for (std::int64_t i = 0; i < geometry_.index_dim(); ++i) {
        store_element(pooled + g * group_stride + i * dim_stride, geometry_.index_dtype(),
                      scratch_[static_cast<std::size_t>(i)]);
      }
    }
  }

 private:
  Vectors(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight, std::int64_t tokens)
      : kernels_(pool_kernels(kernels)), geometry_(geometry), tokens_(tokens) {
    if (geometry.pooling() == Pooling::kMean) norm_weight_ = as_floats(norm_weight);
  }

  const PoolKernels& kernels_;
  const Geometry& geometry_;
  std::span<const float> norm_weight_;
  std::int64_t tokens_;
  std::vector<float> scratch_;
};

Status out_of_memory() { return Status::error(Code::kOutOfMemory, "scratch", "scratch: the system refused memory"); }

}  // namespace

std::int64_t panel_bytes(const Geometry& geometry, std::int64_t groups) {
  const std::int64_t panels = groups / kPanel + (groups % kPanel != 0 ? 1 : 0);
  return row_bytes(geometry.index_dtype(), panels * kPanel * geometry.index_dim());
}

std::int64_t pool_scratch_floats(const Geometry& geometry) {
  const auto padded = [](std::int64_t floats) { return (floats + 15) / 16 * 16; };
  return kPoolGroups * padded(geometry.index_dim()) + 3 * padded(geometry.index_rotary_dim() / 2);
}

Status pool_keys_with(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight, const ConstTensor& raw,
                      std::int64_t first_position, const Coordinates* coordinates, const Tensor& pooled) {
  DefaultFloatEnvironment environment;
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t tokens = geometry.key_tokens();
  if (Status s = admit_norm_weight(geometry, norm_weight); !s.ok()) return s;
  if (Status s = admit_view("index_keys", raw, geometry.index_dtype(), {-1, dim}); !s.ok()) return s;
  const std::int64_t groups = raw.shape[0] / tokens;
  if (Status s = admit_view("pooled", pooled, geometry.index_dtype(), {groups, dim}); !s.ok()) return s;
  if (first_position < 0 || first_position > Geometry::kPositions - raw.shape[0]) {
    return Status::error(Code::kInvalidArgument, "first_position",
                         formatted("first_position: {} tokens from {} are not in 0..{}", raw.shape[0], first_position,
                                   Geometry::kPositions - 1));
  }
  if (Status s = admit_finite("index_keys", raw); !s.ok()) return s;
  const auto place = [&](std::int64_t g) {
    const Coordinates* given = coordinates == nullptr ? nullptr : coordinates + g * tokens;
    return coordinates_at(geometry, first_position + g * tokens, given, g * tokens);
  };
  for (std::int64_t g = 0; g < groups; ++g) {
    if (auto at = place(g); !at.ok()) return at.status();
  }
  auto vectors = Vectors::make(kernels, geometry, norm_weight, tokens);
  if (!vectors) return out_of_memory();
  std::array<Coordinates, kPoolGroups> at;
  for (std::int64_t g = 0; g < groups; g += kPoolGroups) {
    const std::int64_t count = std::min(kPoolGroups, groups - g);
    for (std::int64_t i = 0; i < count; ++i) at[static_cast<std::size_t>(i)] = *place(g + i);
    vectors->pool(raw.at(g * tokens), raw.stride_bytes[0], raw.stride_bytes[1], count, at.data(), pooled.at(g),
                  pooled.stride_bytes[0], pooled.stride_bytes[1]);
  }
  return {};
}

Status pool_keys(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw, std::int64_t first_position,
                 const Coordinates* coordinates, Tensor pooled) {
  return pool_keys_with(default_kernels(), geometry, norm_weight, raw, first_position, coordinates, pooled);
}

Result<Pooler> Pooler::create(const Geometry& geometry, Kernels kernels) {
  try {
    Pooler pooler(geometry, kernels);
    pooler.scratch_.resize(static_cast<std::size_t>(pool_scratch_floats(geometry)));
    return pooler;
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

float Pooler::pool(const float* norm_weight, const std::byte* raw, std::int64_t groups, std::int64_t first_position,
                   const Coordinates* at, std::byte* pooled) {
  DefaultFloatEnvironment environment;
  const std::int64_t element_bytes = dtype_bytes(geometry_.index_dtype());
  std::array<Coordinates, kPoolGroups> text;
  for (std::int64_t g = 0; at == nullptr && g < groups; ++g) {
    const auto position = static_cast<std::int32_t>(first_position + g * geometry_.key_tokens());
    text[static_cast<std::size_t>(g)] = {position, position, position};
  }
  PoolTask task;
  task.geometry = &geometry_;
  task.norm_weight = norm_weight;
  task.raw = raw;
  task.stride_bytes = geometry_.index_dim() * element_bytes;
  task.tokens = geometry_.key_tokens();
  task.groups = groups;
  task.at = at == nullptr ? text.data() : at;
  task.scratch = scratch_.data();
  task.pooled = pooled;
  task.group_stride_bytes = element_bytes;
  task.dim_stride_bytes = kPanel * element_bytes;
  return pool_kernels(kernels_).pool(task);
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

Status prepare_index_queries_with(Kernels kernels, const Geometry& geometry, const ConstTensor& norm_weight,
                                  const ConstTensor& raw, const std::int64_t* positions, const Coordinates* coordinates,
                                  const Tensor& prepared) {
  DefaultFloatEnvironment environment;
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
      return Status::error(
          Code::kInvalidArgument, "positions",
          formatted("positions: {} of row {} is not in 0..{}", positions[q], q, Geometry::kPositions - 1), {q, -1});
    }
    if (auto at = coordinates_at(geometry, positions[q], coordinates == nullptr ? nullptr : coordinates + q, q);
        !at.ok()) {
      return at.status();
    }
  }
  auto vectors = Vectors::make(kernels, geometry, norm_weight, 1);
  if (!vectors) return out_of_memory();
  std::array<Coordinates, kPoolGroups> at;
  for (std::int64_t q = 0; q < queries; ++q) {
    at.fill(*coordinates_at(geometry, positions[q], coordinates == nullptr ? nullptr : coordinates + q, q));
    for (std::int64_t h = 0; h < heads; h += kPoolGroups) {
      vectors->pool(raw.at(q, h), raw.stride_bytes[1], raw.stride_bytes[2], std::min(kPoolGroups, heads - h), at.data(),
                    prepared.at(q, h), prepared.stride_bytes[1], prepared.stride_bytes[2]);
    }
  }
  return {};
}

Status prepare_index_queries(const Geometry& geometry, ConstTensor norm_weight, ConstTensor raw,
                             const std::int64_t* positions, const Coordinates* coordinates, Tensor prepared) {
  return prepare_index_queries_with(default_kernels(), geometry, norm_weight, raw, positions, coordinates, prepared);
}

}  // namespace seriatim
