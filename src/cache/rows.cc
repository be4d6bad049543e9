#include "cache/rows.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/admit.hpp"
#include "base/format.hpp"
#include "base/half.hpp"

namespace seriatim {
namespace {

Status admit_absent(std::string_view name, const ConstTensor& tensor, std::string_view why) {
  if (tensor.empty()) return {};
  return Status::error(Code::kInvalidArgument, name, formatted("{}: {}", name, why));
}

}  // namespace

namespace {

Result<std::int64_t> admit_keys_values(const Geometry& geometry, const TokenBatch& batch) {
  const DType kv = geometry.kv_dtype();
  if (Status s = admit_view("keys", batch.keys, kv, {-1, geometry.kv_heads(), geometry.head_dim()}); !s.ok()) return s;
  const std::int64_t tokens = batch.keys.shape[0];
  if (geometry.values_alias_keys()) {
    if (Status s = admit_absent("values", batch.values, "given although they alias the keys"); !s.ok()) return s;
  } else if (Status s = admit_view("values", batch.values, kv, {tokens, geometry.kv_heads(), geometry.value_dim()});
             !s.ok()) {
    return s;
  }
  return tokens;
}

}  // namespace

Result<std::int64_t> admit_batch(const Geometry& geometry, const LayerLayout& keeps, const TokenBatch& batch) {
  std::int64_t tokens = -1;
  if (keeps.groups != kAbsent) {
    const auto given = admit_keys_values(geometry, batch);
    if (!given.ok()) return given.status();
    tokens = *given;
  } else {
    if (Status s = admit_absent("keys", batch.keys, "given to an index store"); !s.ok()) return s;
    if (Status s = admit_absent("values", batch.values, "given to an index store"); !s.ok()) return s;
  }
  if (keeps.pooled == kAbsent) {
    if (Status s = admit_absent("index_keys", batch.index_keys, "given to a layer without an index"); !s.ok()) return s;
  } else if (Status s =
                 admit_view("index_keys", batch.index_keys, geometry.index_dtype(), {tokens, geometry.index_dim()});
             !s.ok()) {
    return s;
  }
  if (tokens < 0) tokens = batch.index_keys.shape[0];
  if (geometry.rope_axes().empty()) return tokens;
  if (tokens > 0 && batch.coordinates == nullptr) {
    return Status::error(Code::kInvalidArgument, "coordinates",
                         "coordinates: needed because the geometry names rope_axes");
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (const std::int32_t c : batch.coordinates[t]) {
      if (c < 0) {
        return Status::error(Code::kInvalidArgument, "coordinates",
                             formatted("coordinates: {} of token {} is negative", c, t), {t, -1});
      }
    }
  }
  return tokens;
}

float copy_row(const RowKernels& kernels, const std::byte* from, std::int64_t stride_bytes, std::int64_t elements,
               DType dtype, std::byte* to) {
  const std::int64_t element_bytes = dtype_bytes(dtype);
  if (stride_bytes == element_bytes || elements == 1) return bound_of(kernels.copy(from, elements, dtype, to));
  for (std::int64_t i = 0; i < elements; ++i) {
    std::memcpy(to + i * element_bytes, from + i * stride_bytes, static_cast<std::size_t>(element_bytes));
  }
  return bound_of(kernels.largest(to, elements, dtype));
}

Status not_finite(std::string_view tensor, std::int64_t token, std::int64_t element) {
  return Status::error(Code::kNotFinite, tensor,
                       formatted("{}: element {} of token {} is not finite", tensor, element, token), {token, element});
}

}  // namespace seriatim
