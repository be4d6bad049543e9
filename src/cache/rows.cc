#include "cache/rows.hpp"

#include <fmt/format.h>

#include <cstring>

#include "base/admit.hpp"

namespace seriatim {
namespace {

// An all-ones exponent means infinity or NaN. The loop has no exit, so that it becomes vector code.
template <typename Bits>
bool any_not_finite(const std::byte* row, std::int64_t elements, Bits exponent) {
  std::uint32_t found = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, row + i * static_cast<std::int64_t>(sizeof bits), sizeof bits);
    found |= static_cast<std::uint32_t>((bits & exponent) == exponent);
  }
  return found != 0;
}

bool any_not_finite(const std::byte* row, std::int64_t elements, DType dtype) {
  switch (dtype) {
    case DType::kF32: return any_not_finite<std::uint32_t>(row, elements, 0x7f800000u);
    case DType::kBf16: return any_not_finite<std::uint16_t>(row, elements, 0x7f80u);
    case DType::kF16: return any_not_finite<std::uint16_t>(row, elements, 0x7c00u);
    case DType::kI32:
    case DType::kI64: break;
  }
  return false;
}

Status admit_absent(std::string_view name, const ConstTensor& tensor, std::string_view why) {
  if (tensor.empty()) return {};
  return Status::error(Code::kInvalidArgument, name, fmt::format("{}: {}", name, why));
}

}  // namespace

Result<std::int64_t> admit_batch(const Geometry& geometry, bool indexed, const TokenBatch& batch) {
  const DType kv = geometry.kv_dtype();
  if (Status s = admit_view("keys", batch.keys, kv, {-1, geometry.kv_heads(), geometry.head_dim()}); !s.ok()) return s;
  const std::int64_t tokens = batch.keys.shape[0];
  if (geometry.values_alias_keys()) {
    if (Status s = admit_absent("values", batch.values, "given although they alias the keys"); !s.ok()) return s;
  } else if (Status s = admit_view("values", batch.values, kv, {tokens, geometry.kv_heads(), geometry.value_dim()}); !s.ok()) {
    return s;
  }
  if (!indexed) {
    if (Status s = admit_absent("index_keys", batch.index_keys, "given to a layer without an index"); !s.ok()) return s;
  } else if (Status s = admit_view("index_keys", batch.index_keys, geometry.index_dtype(), {tokens, geometry.index_dim()}); !s.ok()) {
    return s;
  }
  if (geometry.rope_axes().empty()) return tokens;
  if (tokens > 0 && batch.coordinates == nullptr) {
    return Status::error(Code::kInvalidArgument, "coordinates", "coordinates: needed because the geometry names rope_axes");
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (const std::int32_t c : batch.coordinates[t]) {
      if (c < 0) {
        return Status::error(Code::kInvalidArgument, "coordinates", fmt::format("coordinates: {} of token {} is negative", c, t), {t, -1});
      }
    }
  }
  return tokens;
}

std::int64_t copy_row(const std::byte* from, std::int64_t stride_bytes, std::int64_t elements, DType dtype, std::byte* to) {
  const std::int64_t element_bytes = dtype_bytes(dtype);
  if (stride_bytes == element_bytes || elements == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(elements * element_bytes));
  } else {
    for (std::int64_t i = 0; i < elements; ++i) {
      std::memcpy(to + i * element_bytes, from + i * stride_bytes, static_cast<std::size_t>(element_bytes));
    }
  }
  return first_not_finite(to, elements, dtype);
}

std::int64_t first_not_finite(const std::byte* row, std::int64_t elements, DType dtype) {
  if (!any_not_finite(row, elements, dtype)) return -1;
  std::int64_t i = 0;
  while (!any_not_finite(row + i * dtype_bytes(dtype), 1, dtype)) ++i;
  return i;
}

Status not_finite(std::string_view tensor, std::int64_t token, std::int64_t element) {
  return Status::error(Code::kNotFinite, tensor, fmt::format("{}: element {} of token {} is not finite", tensor, element, token),
                       {token, element});
}

}  // namespace seriatim
