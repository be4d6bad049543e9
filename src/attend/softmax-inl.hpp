// One split's softmax and the fold, for the heads of one query: a lane is a head. Once per instruction set.
//
// Lanes past the last head hold whatever lay beside it; nobody looks at them.
#if defined(SERIATIM_ATTEND_SOFTMAX_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_SOFTMAX_INL_HPP_
#undef SERIATIM_ATTEND_SOFTMAX_INL_HPP_
#else
#define SERIATIM_ATTEND_SOFTMAX_INL_HPP_
#endif

#include <hwy/highway.h>

#include <limits>

#include "attend/block_scratch.hpp"
#include "attend/exp_log-inl.hpp"
#include "attend/tiles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// Logits of some entries: rows `places` of a matrix.
struct LogitRows {
  const float* logits = nullptr;  // [..][stride], the query's first head first
  std::size_t stride = 0;
  const std::uint8_t* places = nullptr;  // [count]
  std::size_t count = 0;
  const float* biases = nullptr;  // [count], each added to its entry's logits; null: none
};

// The split that a query is filling.
struct OpenSplit {
  float* logits = nullptr;  // [kSplitEntries][stride]
  std::size_t stride = 0;
  float* max = nullptr;     // [heads]
  float* bad = nullptr;     // [heads]: becomes NaN where a logit is not finite
  std::size_t entries = 0;  // so far
};

HWY_INLINE void take_logits(const LogitRows& from, std::size_t heads, const OpenSplit& split) {
  constexpr FloatTag d;
  for (std::size_t h = 0; h < heads; h += kLanes) {
    auto max = split.entries == 0 ? hn::Set(d, -std::numeric_limits<float>::infinity()) : hn::LoadU(d, split.max + h);
    auto bad = hn::LoadU(d, split.bad + h);
    float* to = split.logits + split.entries * split.stride + h;
    for (std::size_t t = 0; t < from.count; ++t, to += split.stride) {
      auto logit = hn::LoadU(d, from.logits + from.places[t] * from.stride + h);
      if (from.biases != nullptr) logit = hn::Add(logit, hn::Set(d, from.biases[t]));
      max = hn::Max(max, logit);
      bad = hn::Add(bad, hn::Sub(logit, logit));  // x - x is 0, or NaN where x is not finite
      hn::StoreU(logit, d, to);
    }
    hn::StoreU(max, d, split.max + h);
    hn::StoreU(bad, d, split.bad + h);
  }
}

// m' = max(m, m_s), a = exp(m - m'), b = exp(m_s - m'), den' = fma(den, a, den_s * b) for one vector of heads.
HWY_INLINE void fold_vec(FloatVec split_max, FloatVec split_den, float* max, float* den, float* a, float* b) {
  constexpr FloatTag d;
  const auto before = hn::LoadU(d, max);
  const auto now = hn::Max(before, split_max);
  const auto scale_before = exp_not_above_0(hn::Sub(before, now));
  const auto scale_split = exp_not_above_0(hn::Sub(split_max, now));
  hn::StoreU(hn::MulAdd(hn::LoadU(d, den), scale_before, hn::Mul(split_den, scale_split)), d, den);
  hn::StoreU(now, d, max);
  hn::StoreU(scale_before, d, a);
  hn::StoreU(scale_split, d, b);
}

// Turns a split's logits into weights and its denominator, and joins both with what came before (a null: nothing did).
HWY_INLINE void weigh(const OpenSplit& split, std::size_t heads, const Partial& total, float* a, float* b) {
  constexpr FloatTag d;
  for (std::size_t h = 0; h < heads; h += kLanes) {
    const auto max = hn::LoadU(d, split.max + h);
    auto den = hn::Zero(d);
    float* weights = split.logits + h;
    for (std::size_t j = 0; j < split.entries; ++j, weights += split.stride) {
      const auto weight = exp_not_above_0(hn::Sub(hn::LoadU(d, weights), max));
      hn::StoreU(weight, d, weights);
      den = hn::Add(den, weight);
    }
    if (a != nullptr) {
      fold_vec(max, den, total.max + h, total.den + h, a + h, b + h);
    } else {
      hn::StoreU(max, d, total.max + h);
      hn::StoreU(den, d, total.den + h);
    }
  }
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
