// Stored elements -> f32 vectors, one type per storage dtype. Included once per instruction set.
//
// A stored NaN keeps its payload here and becomes quiet in the reference; whichever it is, it is a NaN.
#if defined(SERIATIM_BASE_WIDEN_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_BASE_WIDEN_INL_HPP_
#undef SERIATIM_BASE_WIDEN_INL_HPP_
#else
#define SERIATIM_BASE_WIDEN_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "base/half.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: what the scratch is laid out for.
using FloatTag = hn::CappedTag<float, 16>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using FloatVec = hn::Vec<FloatTag>;

// Bytes of any alignment as vectors.
template <typename D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const std::byte* from) {
  const hn::Repartition<std::uint8_t, D> bytes;
  return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}

// Each gives kDType, load() of one vector of elements in order, and load_pair() of twice as many in two vectors: in
// order, or, where kPairsInterleave, the even elements and then the odd ones, which saves shuffles.
struct StoredF32 {
  static constexpr DType kDType = DType::kF32;
  static constexpr std::size_t kBytes = 4;
  static constexpr bool kPairsInterleave = false;
  static HWY_INLINE FloatVec load(const std::byte* from) { return load_bytes(FloatTag(), from); }
  static HWY_INLINE void load_pair(const std::byte* from, FloatVec& v0, FloatVec& v1) {
    v0 = load(from);
    v1 = load(from + 4 * hn::Lanes(FloatTag()));
  }
};

struct StoredBf16 {
  static constexpr DType kDType = DType::kBf16;
  static constexpr std::size_t kBytes = 2;
  static constexpr bool kPairsInterleave = true;
  static HWY_INLINE FloatVec load(const std::byte* from) {
    const auto wide = hn::PromoteTo(WordTag(), load_bytes(HalfTag(), from));
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(wide));
  }
  static HWY_INLINE void load_pair(const std::byte* from, FloatVec& v0, FloatVec& v1) {
    const auto pairs = load_bytes(WordTag(), from);
    v0 = hn::BitCast(FloatTag(), hn::ShiftLeft<16>(pairs));
    v1 = hn::BitCast(FloatTag(), hn::And(pairs, hn::Set(WordTag(), 0xffff0000u)));
  }
};

struct StoredF16 {
  static constexpr DType kDType = DType::kF16;
  static constexpr std::size_t kBytes = 2;
  static constexpr bool kPairsInterleave = false;
  static HWY_INLINE FloatVec load(const std::byte* from) {
    const hn::Rebind<hwy::float16_t, FloatTag> d16;
    return hn::PromoteTo(FloatTag(), load_bytes(d16, from));
  }
  static HWY_INLINE void load_pair(const std::byte* from, FloatVec& v0, FloatVec& v1) {
    v0 = load(from);
    v1 = load(from + 2 * hn::Lanes(FloatTag()));
  }
};

// `elements` stored elements as f32, in order.
template <typename Stored>
HWY_INLINE void widen(const std::byte* from, std::size_t elements, float* HWY_RESTRICT to) {
  constexpr FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= elements; i += lanes) hn::StoreU(Stored::load(from + i * Stored::kBytes), d, to + i);
  for (; i < elements; ++i) to[i] = load_element(from + i * Stored::kBytes, Stored::kDType);
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
