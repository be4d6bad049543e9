// DType and tensor views: how the library is handed memory that the caller owns.
//
// A view is a pointer, a dtype, up to four extents and their strides in bytes. Strides are 64-bit, may be any multiple
// of the element size and may pass 2^32; negative strides are refused where a view is admitted. Views own nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace seriatim {

enum class DType : std::uint8_t { kF32 = 0, kBf16 = 1, kF16 = 2, kI32 = 3, kI64 = 4 };

constexpr std::int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kBf16:
    case DType::kF16:
      return 2;
  }
  return 0;
}

// Bytes of so many elements that lie one behind the other. The product must be one of admitted extents.
constexpr std::int64_t row_bytes(DType dtype, std::int64_t elements) { return elements * dtype_bytes(dtype); }

// "f32", "bf16", "f16", "i32", "i64".
std::string_view dtype_name(DType dtype);

constexpr bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16; }

inline constexpr int kMaxRank = 4;

// A strided view. Unused extents are 1 with stride 0.
template <typename Byte>
struct BasicTensor {
  Byte* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> stride_bytes{0, 0, 0, 0};

  bool empty() const { return data == nullptr; }

  // The element's address; no bounds are checked.
  Byte* at(std::int64_t i0, std::int64_t i1 = 0, std::int64_t i2 = 0, std::int64_t i3 = 0) const {
    return data + i0 * stride_bytes[0] + i1 * stride_bytes[1] + i2 * stride_bytes[2] + i3 * stride_bytes[3];
  }
};

// The view of one row of a batch: `batch` without its first axis, at `row`.
template <typename Byte>
BasicTensor<Byte> row_of(const BasicTensor<Byte>& batch, std::int64_t row) {
  BasicTensor<Byte> one;
  one.data = batch.at(row);
  one.dtype = batch.dtype;
  one.rank = batch.rank - 1;
  for (std::size_t axis = 1; axis < kMaxRank; ++axis) {
    one.shape[axis - 1] = batch.shape[axis];
    one.stride_bytes[axis - 1] = batch.stride_bytes[axis];
  }
  return one;
}

using Tensor = BasicTensor<std::byte>;
using ConstTensor = BasicTensor<const std::byte>;

inline ConstTensor as_const(const Tensor& t) { return {t.data, t.dtype, t.rank, t.shape, t.stride_bytes}; }

// A dense row-major view of `shape` at `data`.
// Takes   data of the dtype's elements, extents >= 0 whose product the caller has admitted.
ConstTensor dense_view(const void* data, DType dtype, std::initializer_list<std::int64_t> shape);
Tensor dense_view(void* data, DType dtype, std::initializer_list<std::int64_t> shape);

}  // namespace seriatim
