#include <cstring>

#include "base/half.hpp"
#include "base/magnitude.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/magnitude_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/simd_target.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if !SERIATIM_HAS_SIMD

SERIATIM_NO_KERNEL_TABLE(RowKernels, row_table)

#else

namespace hn = hwy::HWY_NAMESPACE;

// The largest magnitude seen in each lane, as bits: without the sign they have the order of the values, NaN last.
template <typename Bits>
class Magnitudes {
  using Tag = hn::ScalableTag<Bits>;
  using Bytes = hn::Repartition<std::uint8_t, Tag>;

 public:
  static constexpr std::int64_t kBytes = static_cast<std::int64_t>(hn::MaxLanes(Bytes()));

  HWY_INLINE Magnitudes() : most_(hn::Zero(Tag())) {}

  // Looks at one vector; with kCopy, copies it.
  template <bool kCopy>
  HWY_INLINE void take(const std::byte* from, std::byte* to) {
    constexpr Tag d;
    const auto bytes = hn::LoadU(Bytes(), reinterpret_cast<const std::uint8_t*>(from));
    if constexpr (kCopy) hn::StoreU(bytes, Bytes(), reinterpret_cast<std::uint8_t*>(to));
    most_ =
        hn::Max(most_, hn::And(hn::BitCast(d, bytes), hn::Set(d, static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1))));
  }
  HWY_INLINE void join(const Magnitudes& other) { most_ = hn::Max(most_, other.most_); }
  HWY_INLINE std::uint32_t bits() const { return hn::GetLane(hn::MaxOfLanes(Tag(), most_)); }

 private:
  hn::Vec<Tag> most_;
};

template <bool kCopy, typename Bits>
std::uint32_t take_row(const std::byte* from, std::int64_t bytes, std::byte* to) {
  constexpr std::int64_t kBytes = Magnitudes<Bits>::kBytes;
  Magnitudes<Bits> even;
  Magnitudes<Bits> odd;
  std::int64_t done = 0;
  for (; done + 2 * kBytes <= bytes; done += 2 * kBytes) {
    even.template take<kCopy>(from + done, kCopy ? to + done : nullptr);  // `to` is null where nothing is copied
    odd.template take<kCopy>(from + done + kBytes, kCopy ? to + done + kBytes : nullptr);
  }
  if (done + kBytes <= bytes) {
    even.template take<kCopy>(from + done, kCopy ? to + done : nullptr);
    done += kBytes;
  }
  if (done < bytes) {  // the rest, among zeros
    alignas(64) std::byte rest[static_cast<std::size_t>(kBytes)] = {};
    std::memcpy(rest, from + done, static_cast<std::size_t>(bytes - done));
    odd.template take<false>(rest, nullptr);
    if constexpr (kCopy) std::memcpy(to + done, rest, static_cast<std::size_t>(bytes - done));
  }
  even.join(odd);
  return even.bits();
}

// Of the bits of an element.
float value_of(std::uint32_t bits, DType dtype) {
  std::byte element[sizeof bits];
  std::memcpy(element, &bits, sizeof bits);  // little-endian: a half's bits come first
  return load_element(element, dtype);
}

template <bool kCopy>
float take_row_of(const std::byte* from, std::int64_t elements, DType dtype, std::byte* to) {
  switch (dtype) {
#define SERIATIM_ROW(kind, Bits) \
  case kind:                     \
    return value_of(take_row<kCopy, Bits>(from, elements * static_cast<std::int64_t>(sizeof(Bits)), to), kind);
    SERIATIM_ROW_KERNELS(SERIATIM_ROW)
#undef SERIATIM_ROW
    case DType::kI32:
    case DType::kI64:
      break;
  }
  return std::numeric_limits<float>::quiet_NaN();
}

float copy(const std::byte* from, std::int64_t elements, DType dtype, std::byte* to) {
  return take_row_of<true>(from, elements, dtype, to);
}

float largest(const std::byte* elements, std::int64_t count, DType dtype) {
  return take_row_of<false>(elements, count, dtype, nullptr);
}

SERIATIM_KERNEL_TABLE(RowKernels, row_table, copy, largest)

#endif  // SERIATIM_HAS_SIMD

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"
SERIATIM_KERNEL_FAMILY(RowKernels, row_table, row_kernels, row_reference)
#endif  // HWY_ONCE
