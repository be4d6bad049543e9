// Vectors of sincos32. Once per instruction set.
//
// Correct rounding has one answer, so a shorter evaluation may find it: sine and cosine in double, some 2^-50 of
// themselves off. Where all that lies within 2^-48 of them rounds to one f32, that is the answer; where a midpoint is
// nearer, which happens to one angle in some millions, sincos32 is asked. Compared once with sincos32 for every f32 of
// the range: none differs.
// Source: Ziv 1991, "Fast evaluation of elementary mathematical functions with correctly rounded last bit".
#if defined(SERIATIM_INDEX_SINCOS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_INDEX_SINCOS_INL_HPP_
#undef SERIATIM_INDEX_SINCOS_INL_HPP_
#else
#define SERIATIM_INDEX_SINCOS_INL_HPP_
#endif

#include <hwy/highway.h>

#include <cstddef>

#include "base/sincos.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using AngleTag = hn::CappedTag<double, 8>;
using AngleFloats = hn::Rebind<float, AngleTag>;
using AngleVec = hn::Vec<AngleTag>;

// Whether everything within 2^-48 of each value rounds to one f32.
HWY_INLINE hn::Mask<AngleFloats> rounds_surely(AngleVec v) {
  constexpr AngleTag d;
  constexpr AngleFloats f;
  const auto below = hn::DemoteTo(f, hn::Mul(v, hn::Set(d, 1.0 - 0x1p-48)));
  return hn::Eq(below, hn::DemoteTo(f, hn::Mul(v, hn::Set(d, 1.0 + 0x1p-48))));
}

// The rest of each angle past its nearest multiple of pi/2, which is `n` of them. n * pi/2 is taken away in three
// parts: the first difference is exact, and what the parts leave out is below 2^-120 of n.
HWY_INLINE AngleVec reduce(AngleVec angle, AngleVec n) {
  constexpr AngleTag d;
  const auto first = hn::NegMulAdd(n, hn::Set(d, kHalfPi.hi), angle);
  const auto second = hn::NegMulAdd(n, hn::Set(d, kHalfPi.lo), first);
  return hn::NegMulAdd(n, hn::Set(d, -0x1.f1976b7ed8fbcp-110), second);
}

HWY_INLINE AngleVec sine_of_rest(AngleVec r, AngleVec z) {
  constexpr AngleTag d;
  auto sum = hn::Set(d, kSinTail[4]);
  for (std::size_t i = 4; i-- > 0;) sum = hn::MulAdd(sum, z, hn::Set(d, kSinTail[i]));
  sum = hn::MulAdd(sum, z, hn::Set(d, kSinLead[1].hi));
  sum = hn::MulAdd(sum, z, hn::Set(d, kSinLead[0].hi));
  return hn::MulAdd(hn::Mul(r, z), sum, r);
}

HWY_INLINE AngleVec cosine_of_rest(AngleVec z) {
  constexpr AngleTag d;
  auto sum = hn::Set(d, kCosTail[5]);
  for (std::size_t i = 5; i-- > 0;) sum = hn::MulAdd(sum, z, hn::Set(d, kCosTail[i]));
  sum = hn::MulAdd(sum, z, hn::Set(d, kCosLead[1].hi));
  sum = hn::MulAdd(sum, z, hn::Set(d, kCosLead[0].hi));
  return hn::MulAdd(sum, z, hn::Set(d, 1.0));
}

// Takes   one vector of angles, each 0 .. 2^31
// Gives   their sines and cosines by sincos32's bits, and how many of them had to be asked for.
HWY_INLINE std::size_t sincos_of(const float* angles, float* sines, float* cosines) {
  constexpr AngleTag d;
  constexpr AngleFloats f;
  constexpr hn::RebindToSigned<AngleFloats> i32;
  const auto angle = hn::PromoteTo(d, hn::LoadU(f, angles));
  const auto n = hn::Round(hn::Mul(angle, hn::Set(d, 0x1.45f306dc9c883p-1)));
  const auto rest = reduce(angle, n);
  const auto z = hn::Mul(rest, rest);
  const auto wide_sine = sine_of_rest(rest, z);
  const auto wide_cosine = cosine_of_rest(z);
  const auto sine = hn::DemoteTo(f, wide_sine);
  const auto cosine = hn::DemoteTo(f, wide_cosine);
  // Quadrants 1 and 3 swap the two; 2 and 3 negate the sine, 1 and 2 the cosine.
  const auto quadrant = hn::DemoteTo(i32, n);
  const auto one = hn::Set(i32, 1);
  const auto swapped = hn::MaskFromVec(hn::BitCast(f, hn::Neg(hn::And(quadrant, one))));
  const auto sign_of = [&](auto q) { return hn::BitCast(f, hn::ShiftLeft<30>(hn::And(q, hn::Set(i32, 2)))); };
  hn::StoreU(hn::Xor(hn::IfThenElse(swapped, cosine, sine), sign_of(quadrant)), f, sines);
  hn::StoreU(hn::Xor(hn::IfThenElse(swapped, sine, cosine), sign_of(hn::Add(quadrant, one))), f, cosines);
  if (HWY_LIKELY(hn::AllTrue(f, hn::And(rounds_surely(wide_sine), rounds_surely(wide_cosine))))) return 0;
  for (std::size_t lane = 0; lane < hn::Lanes(f); ++lane) {
    const SinCos exact = sincos32(angles[lane]);
    sines[lane] = exact.sin;
    cosines[lane] = exact.cos;
  }
  return hn::Lanes(f);
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
