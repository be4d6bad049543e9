// Sums and denominator -> outputs of any float dtype. Once per instruction set.
#if defined(SERIATIM_ATTEND_WRITE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_WRITE_INL_HPP_
#undef SERIATIM_ATTEND_WRITE_INL_HPP_
#else
#define SERIATIM_ATTEND_WRITE_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "attend/tiles-inl.hpp"
#include "base/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// sums / den in place, the dims then in order. Gives false if a quotient passes `largest`, or is NaN.
template <typename Stored>
HWY_INLINE bool divide_row(float* sums, float den, float largest, std::size_t dims) {
  constexpr FloatTag d;
  const auto divisor = hn::Set(d, den);
  const auto most = hn::Set(d, largest);
  auto right = hn::Eq(divisor, divisor);
  for (std::size_t i = 0; i < dims; i += 2 * kLanes) {
    const auto v0 = hn::Div(hn::LoadU(d, sums + i), divisor);
    const auto v1 = hn::Div(hn::LoadU(d, sums + i + kLanes), divisor);
    right = hn::And(right, hn::And(hn::Le(hn::Abs(v0), most), hn::Le(hn::Abs(v1), most)));
    if (Stored::kPairsInterleave && i + 2 * kLanes <= dims) {
      hn::StoreInterleaved2(v0, v1, d, sums + i);
    } else {
      hn::StoreU(v0, d, sums + i);
      hn::StoreU(v1, d, sums + i + kLanes);
    }
  }
  return hn::AllTrue(d, right);
}

// Sums in the kernel's order -> the dims in order.
template <typename Stored>
HWY_INLINE void dims_in_order(const float* sums, std::size_t dims, float* to) {
  constexpr FloatTag d;
  std::size_t i = 0;
  for (; Stored::kPairsInterleave && i + 2 * kLanes <= dims; i += 2 * kLanes)
    hn::StoreInterleaved2(hn::LoadU(d, sums + i), hn::LoadU(d, sums + i + kLanes), d, to + i);
  std::copy_n(sums + i, dims - i, to + i);
}

// The high half of each word, rounded to nearest even; values that stay finite.
HWY_INLINE hn::Vec<HalfTag> round_to_bf16(FloatVec v) {
  constexpr WordTag words;
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fffu)));
  return hn::TruncateTo(HalfTag(), hn::ShiftRight<16>(rounded));
}

// Floats that stay finite, rounded once each, at `stride_bytes`.
HWY_INLINE void narrow_row(const float* from, std::size_t elements, DType dtype, std::byte* to,
                           std::int64_t stride_bytes) {
  constexpr FloatTag d;
  std::size_t i = 0;
  if (stride_bytes == dtype_bytes(dtype)) {
    if (dtype == DType::kF32) {
      std::memcpy(to, from, elements * sizeof(float));
      return;
    }
    constexpr hn::Repartition<std::uint8_t, HalfTag> bytes;
    constexpr hn::Rebind<hwy::float16_t, FloatTag> d16;
    for (; i + kLanes <= elements; i += kLanes) {
      const auto v = hn::LoadU(d, from + i);
      const auto half =
          dtype == DType::kBf16 ? hn::BitCast(bytes, round_to_bf16(v)) : hn::BitCast(bytes, hn::DemoteTo(d16, v));
      hn::StoreU(half, bytes, reinterpret_cast<std::uint8_t*>(to + 2 * i));
    }
  }
  for (; i < elements; ++i) store_element(to + static_cast<std::int64_t>(i) * stride_bytes, dtype, from[i]);
}

enum class HeadResult { kRight, kEmpty, kOverflow };

// Writes the output of head `h` of `total` as head `head` of `output`: NaN where it overflowed, zeros where nothing was
// reduced.
template <typename Stored>
HeadResult write_head(const Partial& total, std::size_t h, bool any, std::size_t dims, std::size_t dim_stride,
                      const Tensor& output, std::int64_t head) {
  float* sums = total.sums + h * dim_stride;
  std::byte* to = output.at(head);
  const auto fill = [&](float value) {
    for (std::size_t i = 0; i < dims; ++i)
      store_element(to + static_cast<std::int64_t>(i) * output.stride_bytes[1], output.dtype, value);
  };
  if (!any) {
    fill(0.0f);
    return HeadResult::kEmpty;
  }
  if (total.bad[h] != 0.0f ||
      !divide_row<Stored>(sums, total.den[h], largest_before_overflow(output.dtype), dims)) {  // NaN is not 0
    fill(std::numeric_limits<float>::quiet_NaN());
    return HeadResult::kOverflow;
  }
  narrow_row(sums, dims, output.dtype, to, output.stride_bytes[1]);
  return HeadResult::kRight;
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
