// What a cache asks of tokens when it takes them, for those who keep them themselves.
#include <cstring>

#include "base/format.hpp"
#include "seriatim/borrow.hpp"

namespace seriatim {
namespace {

// How many of `count` elements are infinite or NaN: their exponent is all ones. No exit from the loop, so that it
// becomes vector code where the elements are neighbours.
template <typename Bits>
std::int64_t count_faults(const std::byte* at, std::int64_t count, std::int64_t stride_bytes, Bits exponent) {
  std::int64_t faults = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, at + i * stride_bytes, sizeof bits);
    faults += (bits & exponent) == exponent ? 1 : 0;
  }
  return faults;
}

template <typename Bits>
std::int64_t faults_of(const std::byte* at, std::int64_t count, std::int64_t stride_bytes, Bits exponent) {
  constexpr auto kDense = static_cast<std::int64_t>(sizeof(Bits));
  return stride_bytes == kDense ? count_faults<Bits>(at, count, kDense, exponent)
                                : count_faults<Bits>(at, count, stride_bytes, exponent);
}

std::int64_t faults_of(DType dtype, const std::byte* at, std::int64_t count, std::int64_t stride_bytes) {
  if (dtype == DType::kF32) return faults_of<std::uint32_t>(at, count, stride_bytes, 0x7f800000u);
  return faults_of<std::uint16_t>(at, count, stride_bytes, dtype == DType::kBf16 ? 0x7f80u : 0x7c00u);
}

}  // namespace

Status check_finite(std::string_view argument, const ConstTensor& tensor) {
  if (!is_float(tensor.dtype)) {
    return Status::error(Code::kInvalidArgument, argument,
                         formatted("{}: dtype {}", argument, dtype_name(tensor.dtype)));
  }
  if (tensor.rank < 1 || tensor.rank > kMaxRank) {
    return Status::error(Code::kInvalidArgument, argument, formatted("{}: rank {}", argument, tensor.rank));
  }
  const auto last = static_cast<std::size_t>(tensor.rank - 1);
  ConstTensor rows = tensor;  // without its last axis
  rows.shape[last] = 1;
  rows.stride_bytes[last] = 0;
  const std::int64_t count = tensor.shape[last];
  const std::int64_t stride_bytes = tensor.stride_bytes[last];
  for (std::int64_t i0 = 0; i0 < rows.shape[0]; ++i0) {
    std::int64_t row = 0;
    for (std::int64_t i1 = 0; i1 < rows.shape[1]; ++i1) {
      for (std::int64_t i2 = 0; i2 < rows.shape[2]; ++i2) {
        for (std::int64_t i3 = 0; i3 < rows.shape[3]; ++i3, ++row) {
          const std::byte* at = rows.at(i0, i1, i2, i3);
          if (faults_of(tensor.dtype, at, count, stride_bytes) == 0) continue;
          std::int64_t element = 0;
          while (faults_of(tensor.dtype, at + element * stride_bytes, 1, stride_bytes) == 0) ++element;
          return Status::error(Code::kNotFinite, argument,
                               formatted("{}: element {} of row {} is not finite", argument, row * count + element, i0),
                               {i0, row * count + element});
        }
      }
    }
  }
  return {};
}

}  // namespace seriatim
