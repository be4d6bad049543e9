// exp32 and log32 on vectors: the same steps in the same order (base/exp.hpp, base/log.hpp). Once per instruction set.
#if defined(SERIATIM_ATTEND_EXP_LOG_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_EXP_LOG_INL_HPP_
#undef SERIATIM_ATTEND_EXP_LOG_INL_HPP_
#else
#define SERIATIM_ATTEND_EXP_LOG_INL_HPP_
#endif

#include <hwy/highway.h>

#include "base/exp.hpp"
#include "base/log.hpp"
#include "base/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// e^x for x <= 0, where no result overflows; a NaN gives whatever it gives.
HWY_INLINE FloatVec exp_not_above_0(FloatVec x) {
  constexpr FloatTag d;
  const auto shift = hn::Set(d, kExpShift);
  const auto shifted = hn::MulAdd(x, hn::Set(d, kExpLog2E), shift);
  const auto n = hn::Sub(shifted, shift);
  auto r = hn::MulAdd(n, hn::Set(d, kExpNegLn2Hi), x);
  r = hn::MulAdd(n, hn::Set(d, kExpNegLn2Lo), r);
  auto p = hn::Set(d, kExpPolynomial[4]);
  p = hn::MulAdd(p, r, hn::Set(d, kExpPolynomial[3]));
  p = hn::MulAdd(p, r, hn::Set(d, kExpPolynomial[2]));
  p = hn::MulAdd(p, r, hn::Set(d, kExpPolynomial[1]));
  p = hn::MulAdd(p, r, hn::Set(d, kExpPolynomial[0]));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  constexpr WordTag words;
  const auto scaled = hn::Add(hn::BitCast(words, p), hn::ShiftLeft<23>(hn::BitCast(words, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpLowest)), hn::BitCast(d, scaled));
}

// Natural logarithm for finite x >= 1, as a denominator is; a NaN gives whatever it gives.
HWY_INLINE FloatVec log_from_1(FloatVec x) {
  constexpr FloatTag d;
  constexpr WordTag words;
  constexpr hn::RebindToSigned<FloatTag> ints;
  const auto bits = hn::BitCast(words, x);
  const auto exponent = hn::ShiftRight<23>(hn::BitCast(ints, hn::Sub(bits, hn::Set(words, kLogSqrtHalfBits))));
  const auto m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(hn::BitCast(words, exponent))));
  const auto k = hn::ConvertTo(d, exponent);
  const auto f = hn::Sub(m, hn::Set(d, 1.0f));
  auto p = hn::Set(d, kLogPolynomial[7]);
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[6]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[5]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[4]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[3]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[2]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[1]));
  p = hn::MulAdd(p, f, hn::Set(d, kLogPolynomial[0]));
  p = hn::MulAdd(p, f, hn::Set(d, -0.5f));
  const auto tail = hn::MulAdd(hn::Mul(f, f), p, hn::Mul(k, hn::Set(d, kLogLn2Lo)));
  return hn::MulAdd(k, hn::Set(d, kLogLn2Hi), hn::Add(f, tail));
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
