// The cut: the score above which every group is chosen, and how many of the groups that equal it still fit. Once per
// instruction set.
//
// It is found by halving: scores are integers in the same order, and one vector pass over those that may be the cut
// says how many reach the middle of the interval left. Only counts cross lanes.
#if defined(SERIATIM_SELECT_CUT_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_SELECT_CUT_INL_HPP_
#undef SERIATIM_SELECT_CUT_INL_HPP_
#else
#define SERIATIM_SELECT_CUT_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "select/sample_place.hpp"
#include "select/score_key.hpp"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128 && !(HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using MF = hn::Mask<F32>;

constexpr std::size_t kLanes = hn::MaxLanes(F32());
constexpr std::size_t kDirect = 4096;  // scores whose cut is found by halving alone
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

HWY_INLINE std::size_t count_of(MF mask) { return hn::CountTrue(F32(), mask); }

// Scores as bits in int32 scratch: read as they were written, whatever they stand for.
HWY_INLINE VF load_bits(const std::int32_t* bits) { return hn::BitCast(F32(), hn::LoadU(I32(), bits)); }
HWY_INLINE VF load_bits(const float* scores) { return hn::LoadU(F32(), scores); }
HWY_INLINE float score_at(const std::int32_t* bits, std::size_t i) { return std::bit_cast<float>(bits[i]); }

HWY_INLINE std::uint64_t bits_of(MF mask) {
  std::conditional_t<kLanes == 16, std::uint16_t, std::uint8_t> bits;
  std::uint8_t bytes[8];
  hn::StoreMaskBits(F32(), mask, bytes);
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

// Of four vectors, the first in the lowest bits.
HWY_INLINE std::uint64_t bits_of(MF a, MF b, MF c, MF d) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // Mask registers are joined before they are moved: it is the moves that take the time.
  return _cvtmask64_u64(_mm512_kunpackd(_mm512_kunpackw(d.raw, c.raw), _mm512_kunpackw(b.raw, a.raw)));
#else
  return bits_of(a) | bits_of(b) << kLanes | bits_of(c) << 2 * kLanes | bits_of(d) << 3 * kLanes;
#endif
}

// For each set of up to 8 lanes, the lanes in it.
constexpr std::array<std::array<std::uint8_t, 8>, 256> kLanesOf = [] {
  std::array<std::array<std::uint8_t, 8>, 256> lanes{};
  for (std::size_t set = 0; set < 256; ++set) {
    for (std::size_t lane = 0, n = 0; lane < 8; ++lane) {
      if ((set >> lane & 1) != 0) lanes[set][n++] = static_cast<std::uint8_t>(lane);
    }
  }
  return lanes;
}();

// Writes the lanes of `values` that the mask has, packed to the front of a whole vector; gives how many.
HWY_INLINE std::size_t pack(VI values, MF mask, std::int32_t* to) {
  const I32 di;
  if constexpr (kLanes == 16) {
    // Not CompressStore: writing under a mask is slow on some processors.
    hn::StoreU(hn::Compress(values, hn::RebindMask(di, mask)), di, to);
  } else {
    // Not Compress: some compilers copy its table for every call.
    const auto lanes = hn::PromoteTo(di, hn::LoadU(hn::Rebind<std::uint8_t, I32>(), kLanesOf[bits_of(mask)].data()));
    hn::StoreU(hn::TableLookupLanes(values, hn::IndicesFromVec(di, lanes)), di, to);
  }
  return count_of(mask);
}

// Scores to be counted against one bound after another. A NaN reaches none.
class Pool {
 public:
  Pool(const std::int32_t* bits, std::size_t count) : bits_(bits), count_(count), whole_(count - count % kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      tail_[lane] = whole_ + lane < count ? score_at(bits, whole_ + lane) : kNaN;
  }

  std::size_t size() const { return count_; }

  // How many reach the bound.
  HWY_INLINE std::size_t reach(float bound) const {
    const I32 di;
    const VF least = hn::Set(F32(), bound);
    const auto count = [&](VI sum, VF scores) HWY_ATTR {
      return hn::Sub(sum, hn::VecFromMask(di, hn::RebindMask(di, hn::Ge(scores, least))));
    };
    VI sum0 = count(hn::Zero(di), hn::Load(F32(), tail_));
    VI sum1 = hn::Zero(di), sum2 = hn::Zero(di), sum3 = hn::Zero(di);
    std::size_t i = 0;
    for (; i + 4 * kLanes <= whole_; i += 4 * kLanes) {
      sum0 = count(sum0, load_bits(bits_ + i));
      sum1 = count(sum1, load_bits(bits_ + i + kLanes));
      sum2 = count(sum2, load_bits(bits_ + i + 2 * kLanes));
      sum3 = count(sum3, load_bits(bits_ + i + 3 * kLanes));
    }
    for (; i < whole_; i += kLanes) sum0 = count(sum0, load_bits(bits_ + i));
    const VI sum = hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3));
    return static_cast<std::size_t>(hn::GetLane(hn::SumOfLanes(di, sum)));
  }

  // The least score that reaches `low` and the greatest up to `high`; inf and -inf if none is.
  HWY_INLINE std::pair<float, float> ends(float low, float high) const {
    const F32 d;
    const VF from = hn::Set(d, low);
    const VF to = hn::Set(d, high);
    const VF none = hn::Set(d, kInfinity);
    VF least[2] = {none, none};
    VF greatest[2] = {hn::Neg(none), hn::Neg(none)};
    const auto look = [&](int chain, VF scores) HWY_ATTR {  // what lies outside, and a NaN, is replaced
      least[chain] = hn::Min(least[chain], hn::IfThenElse(hn::Ge(scores, from), scores, none));
      greatest[chain] = hn::Max(greatest[chain], hn::IfThenElse(hn::Le(scores, to), scores, hn::Neg(none)));
    };
    look(0, hn::Load(d, tail_));
    std::size_t i = 0;
    for (; i + 2 * kLanes <= whole_; i += 2 * kLanes) {
      look(0, load_bits(bits_ + i));
      look(1, load_bits(bits_ + i + kLanes));
    }
    if (i < whole_) look(0, load_bits(bits_ + i));
    return {hn::GetLane(hn::MinOfLanes(d, hn::Min(least[0], least[1]))),
            hn::GetLane(hn::MaxOfLanes(d, hn::Max(greatest[0], greatest[1])))};
  }

 private:
  const std::int32_t* bits_;
  std::size_t count_;
  std::size_t whole_;
  HWY_ALIGN float tail_[kLanes];
};

// Chosen is what lies above `at`, and of what equals it the first `equals`.
struct Cut {
  float at = 0.0f;
  std::size_t equals = 0;
};

// Close to the logarithm of count / keep.
HWY_INLINE float distance(std::size_t count, std::size_t keep) {
  const auto n = static_cast<float>(count);
  const auto k = static_cast<float>(keep);
  return 3.0f * (n - k) * (n + k) / (n * n + 4.0f * n * k + k * k);
}

// The search for a cut: an interval of keys of which `reach` scores reach `low` and `above` reach `high`, and the two
// bounds tried last.
class Search {
 public:
  explicit HWY_INLINE Search(std::size_t count) : reach_(count) {}

  HWY_INLINE bool over() const { return high_ - low_ <= 1; }
  HWY_INLINE float low() const { return score_of(low_); }
  HWY_INLINE std::size_t above() const { return above_; }

  // Narrows the interval to what is in it: at first, and when it may have become much wider than that.
  HWY_INLINE void look(const Pool& pool) {
    constexpr int kTries = 8;
    if (step_ % kTries != 0) return;
    const auto [least, greatest] = pool.ends(score_of(low_), score_of(high_ - 1));
    low_ = key_of(least);
    high_ = key_of(greatest) + 1;
  }

  // A key inside. First one that fits if scores thin out exponentially, as the best few of most inputs do; then along
  // the line through the last two tries; and if that has not ended soon, the middle, which does.
  HWY_INLINE std::int64_t next(std::size_t keep) const {
    constexpr int kLines = 16;
    const float from = score_of(low_);
    const float to = score_of(high_ - 1);
    float value = last_ + distance(last_reach_, keep) * (last_ - before_) /
                              (distance(before_reach_, keep) - distance(last_reach_, keep));
    if (step_ == 0) value = from + (to - from) * distance(reach_, keep) / (distance(reach_, keep) + 3.0f);
    if (!(value > from && value < to)) value = from * 0.5f + to * 0.5f;
    const bool line = step_ < kLines / 2 || (step_ < kLines && step_ % 2 == 0);
    if (!line || !std::isfinite(value)) return low_ + (high_ - low_) / 2;
    return std::clamp(key_of(value), low_ + 1, high_ - 1);
  }

  HWY_INLINE void learn(std::int64_t key, std::size_t reach, std::size_t keep) {
    before_ = step_ == 0 ? score_of(low_) : last_;
    before_reach_ = step_ == 0 ? reach_ : last_reach_;
    ++step_;
    last_ = score_of(key);
    last_reach_ = reach;
    if (reach >= keep) {
      low_ = key;
      reach_ = reach;
    } else {
      high_ = key;
      above_ = reach;
    }
  }

 private:
  std::int64_t low_ = key_of(-kInfinity);
  std::int64_t high_ = key_of(kInfinity) + 1;
  std::size_t reach_;
  std::size_t above_ = 0;
  float last_ = 0, before_ = 0;
  std::size_t last_reach_ = 0, before_reach_ = 0;
  int step_ = 0;
};

// The cut that leaves `keep` >= 1 of the pool, or up to `slack` more; of a pool with fewer numbers, its least.
HWY_INLINE Cut find_cut(const Pool& pool, std::size_t keep, std::size_t slack) {
  Search search(pool.size());
  while (true) {
    search.look(pool);
    if (search.over()) return {search.low(), keep - search.above()};
    const std::int64_t key = search.next(keep);
    const std::size_t reach = pool.reach(score_of(key));
    if (reach >= keep && reach <= keep + slack) return {score_of(key), reach};
    search.learn(key, reach, keep);
  }
}

// For each i < count, a multiple of kMaximaStep: the greatest of the `joined` scores i, i + step, i + 2 * step, ... NaN
// is passed over; -inf where there is nothing else.
constexpr std::size_t kMaximaStep = 4 * kLanes;  // chains enough to hide how long a comparison takes
template <class Score>
HWY_INLINE void store_maxima(const Score* scores, std::size_t count, std::size_t joined, std::size_t step,
                             std::int32_t* maxima) {
  const F32 d;
  for (std::size_t i = 0; i < count; i += kMaximaStep) {
    VF most[4];
    HWY_UNROLL(4)
    for (VF& each : most) each = hn::Set(d, -kInfinity);
    for (std::size_t j = 0; j < joined; ++j) {
      HWY_UNROLL(4)
      for (std::size_t chain = 0; chain < 4; ++chain) {
        const VF some = load_bits(scores + i + j * step + chain * kLanes);
        most[chain] = hn::IfThenElse(hn::Gt(some, most[chain]), some, most[chain]);
      }
    }
    HWY_UNROLL(4)
    for (std::size_t chain = 0; chain < 4; ++chain)
      hn::StoreU(hn::BitCast(I32(), most[chain]), I32(), maxima + i + chain * kLanes);
  }
}

// Scores from all over an array.
class Sample {
 public:
  // `scores` as floats or as their bits.
  template <class Score>
  HWY_INLINE Sample(const Score* scores, std::size_t count) {
    HWY_ALIGN std::uint32_t places[kSamplePlaces];
    for (std::uint32_t i = 0; i < kSamplePlaces; ++i) places[i] = sample_place(i, static_cast<std::uint32_t>(count));
    for (std::uint32_t i = 0; i < kSamplePlaces; ++i)
      std::memcpy(bits_ + i * kSampleRun, scores + places[i], kSampleRun * sizeof(float));
  }

  std::size_t numbers() const { return Pool(bits_, kSampleSize).reach(-kInfinity); }

  // A score that `rank` of the sample reach, or an eighth more: inf for rank 0, -inf for one past the last number.
  HWY_INLINE float reached_by(std::size_t rank, std::size_t numbers = kSampleSize) const {
    if (rank == 0 || rank > numbers) return rank == 0 ? kInfinity : -kInfinity;
    return find_cut(Pool(bits_, kSampleSize), rank, rank / 8).at;
  }

  // The same, but about: found among the greatest of every four, whose ranks are those of four times as many if the
  // scores are independent. What is far apart in the sample is joined, because neighbours often are alike.
  HWY_INLINE float reached_by_about(std::size_t rank, std::size_t numbers = kSampleSize) const {
    constexpr std::size_t kJoined = 4;
    constexpr std::size_t kMaxima = kSampleSize / kJoined;
    if (rank > numbers) return -kInfinity;
    HWY_ALIGN std::int32_t maxima[kMaxima];
    store_maxima(bits_, kMaxima, kJoined, kMaxima, maxima);
    const float others = 1.0f - static_cast<float>(rank) / static_cast<float>(kSampleSize);
    const float share = 1.0f - others * others * others * others;
    const auto among = static_cast<std::size_t>(share * static_cast<float>(kMaxima)) + 1;
    return find_cut(Pool(maxima, kMaxima), std::min(among, kMaxima), among / 16).at;
  }

 private:
  HWY_ALIGN std::int32_t bits_[kSampleSize];
};

// Ranks of a sample that very likely enclose the one which the best `keep` of `count` end at.
struct Ranks {
  HWY_INLINE Ranks(std::size_t keep, std::size_t count) {
    const float expected = static_cast<float>(keep) / static_cast<float>(count) * static_cast<float>(kSampleSize);
    // Fails once in a hundred times, and each costs two passes more.
    const float margin = 2.25f * std::sqrt(expected) + 1.0f;
    low = static_cast<std::size_t>(expected + margin) + 1;
    // reached_by is that generous.
    high = expected > margin ? static_cast<std::size_t>((expected - margin) * 0.88f) : 0;
  }
  std::size_t low, high;
};

// Packs those of `count` scores that lie in [low, high] to the front of `to`, which may be where they come from.
HWY_INLINE std::size_t pack_between(const std::int32_t* bits, std::size_t count, float low, float high,
                                    std::int32_t* to) {
  const VF least = hn::Set(F32(), low);
  const VF most = hn::Set(F32(), high);
  std::size_t packed = 0;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {  // never writes past what it has read
    const VF scores = load_bits(bits + i);
    packed += pack(hn::BitCast(I32(), scores), hn::And(hn::Ge(scores, least), hn::Le(scores, most)), to + packed);
  }
  for (; i < count; ++i) {
    if (score_at(bits, i) >= low && score_at(bits, i) <= high) to[packed++] = bits[i];
  }
  return packed;
}

// As find_cut for any number of scores, which it consumes: samples shrink the interval that holds the cut.
inline Cut narrow_cut(std::int32_t* bits, std::size_t count, std::size_t keep) {
  constexpr int kRounds = 6;  // each leaves about a fifth; were an input to resist, halving what is left is linear too
  for (int round = 0; round < kRounds && count > kDirect; ++round) {
    const Sample sample(bits, count);
    const Ranks ranks(keep, count);
    const Pool pool(bits, count);
    const auto [least, greatest] = pool.ends(-kInfinity, kInfinity);
    float low = std::max(least, sample.reached_by(ranks.low));
    float high = std::min(greatest, sample.reached_by(ranks.high));
    const std::size_t reach_low = pool.reach(low);
    const std::size_t above = high < kInfinity ? pool.reach(score_of(key_of(high) + 1)) : 0;
    if (keep <= above) {
      low = score_of(key_of(high) + 1);
      high = kInfinity;
    } else if (keep > reach_low) {
      keep -= reach_low;
      high = score_of(key_of(low) - 1);
      low = -kInfinity;
    } else if (key_of(low) == key_of(high)) {
      return {low, keep - above};
    } else {
      keep -= above;
    }
    count = pack_between(bits, count, low, high, bits);
  }
  return find_cut(Pool(bits, count), keep, 0);
}

}  // namespace
}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // fused multiply-add
#endif  // include guard per target
