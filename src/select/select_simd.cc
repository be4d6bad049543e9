// Selection without a sort: the input stands in position order already, so all that is sought is the cut, the score
// above which every group is chosen, and how many of the groups that equal it still fit.
//
// A budget far below the number of groups takes one pass: a sample gives a bound that is very likely below the cut but
// not by much, the pass collects what reaches it, and the cut is found among those few. A bound that was too high shows
// in their number, and the pass runs again without one; whenever the collected fill their room, they are cut down and
// the bound rises. So the result never depends on the sample, and the time is linear for any input.
// A larger budget, or few groups, takes the cut of all scores (intervals of a copy, narrowed), then one pass to emit.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "select/sample_place.hpp"
#include "select/score_key.hpp"
#include "select/select_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/select_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2)

// Where the other rooms run the reference, so does this one.
const SelectKernels* select_table() { return nullptr; }

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using VF = hn::Vec<F32>;
using VI = hn::Vec<I32>;
using MF = hn::Mask<F32>;

constexpr std::size_t kLanes = hn::MaxLanes(F32());
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

constexpr std::size_t kDirect = 4096;  // scores whose cut is found by halving alone
constexpr std::size_t kChunk = 512;    // scores between two looks at how many were collected
constexpr std::size_t kRoom = 8192;    // collected at a time, if the budget needs no more

HWY_INLINE MF at_least(VF scores, VF bound) { return hn::Ge(scores, bound); }

HWY_INLINE std::size_t count_of(MF mask) { return hn::CountTrue(F32(), mask); }

// Scores as bits in the int32 scratch: read as they were written, whatever type they stand for.
HWY_INLINE VF load_bits(const std::int32_t* bits) { return hn::BitCast(F32(), hn::LoadU(I32(), bits)); }
HWY_INLINE float score_at(const std::int32_t* bits, std::size_t i) { return std::bit_cast<float>(bits[i]); }

// The last scores of an array that fill no vector; the other lanes are NaN, which no comparison admits.
template <class Load>
HWY_INLINE void fill_tail(float* tail, std::size_t begin, std::size_t end, Load load) {
  for (std::size_t lane = 0; lane < kLanes; ++lane) tail[lane] = begin + lane < end ? load(begin + lane) : kNaN;
}

// Scores without a NaN, to be counted against one bound after another.
class Pool {
 public:
  Pool(const std::int32_t* bits, std::size_t count) : bits_(bits), whole_(count - count % kLanes) {
    fill_tail(tail_, whole_, count, [bits](std::size_t i) { return score_at(bits, i); });
  }

  std::size_t at_least(float bound) const {
    const I32 di;
    const VF least = hn::Set(F32(), bound);
    const auto count = [&](VI sum, VF scores) HWY_ATTR { return hn::Sub(sum, hn::VecFromMask(di, hn::RebindMask(di, hn::Ge(scores, least)))); };
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

  float largest() const {
    const F32 d;
    // Written so that the tail's NaN is not taken.
    const auto larger = [](VF a, VF b) HWY_ATTR { return hn::IfThenElse(hn::Gt(b, a), b, a); };
    VF best = larger(hn::Set(d, -kInfinity), hn::Load(d, tail_));
    for (std::size_t i = 0; i < whole_; i += kLanes) best = larger(best, load_bits(bits_ + i));
    return hn::GetLane(hn::MaxOfLanes(d, best));
  }

  float smallest() const {
    const F32 d;
    const auto smaller = [](VF a, VF b) HWY_ATTR { return hn::IfThenElse(hn::Lt(b, a), b, a); };
    VF best = smaller(hn::Set(d, kInfinity), hn::Load(d, tail_));
    for (std::size_t i = 0; i < whole_; i += kLanes) best = smaller(best, load_bits(bits_ + i));
    return hn::GetLane(hn::MinOfLanes(d, best));
  }

 private:
  const std::int32_t* bits_;
  std::size_t whole_;
  HWY_ALIGN float tail_[kLanes];
};

// Chosen is what lies above `at`, and of what equals it the first `equals`.
struct Cut {
  float at = 0.0f;
  std::size_t equals = 0;
};

// A key strictly between two. Scores lie densest where halving by value finds them; halving by key ends after 32 steps
// whatever they are.
HWY_INLINE std::int64_t between(std::int64_t low, std::int64_t high, int step) {
  constexpr int kByValue = 10;
  const double value = (static_cast<double>(score_of(low)) + static_cast<double>(score_of(high - 1))) / 2.0;
  if (step >= kByValue || !std::isfinite(value)) return low + (high - low) / 2;
  return std::clamp(key_of(static_cast<float>(value)), low + 1, high - 1);
}

// The cut that leaves `keep` of the pool, at least 1; `keep` or more scores reach `low`.
Cut find_cut(const Pool& pool, std::size_t keep, float low) {
  std::int64_t low_key = key_of(low);
  std::int64_t high_key = key_of(pool.largest()) + 1;
  std::size_t above = 0;  // that reach high_key
  for (int step = 0; high_key - low_key > 1; ++step) {
    const std::int64_t middle = between(low_key, high_key, step);
    const std::size_t reach = pool.at_least(score_of(middle));
    if (reach == keep) return {score_of(middle), keep};
    if (reach > keep) {
      low_key = middle;
    } else {
      high_key = middle;
      above = reach;
    }
  }
  return {score_of(low_key), keep - above};
}

// Scores from all over an array; a NaN counts as -inf.
class Sample {
 public:
  template <class Load>
  Sample(std::size_t count, Load load) {
    for (std::uint32_t i = 0; i < kSampleSize; ++i) {
      const float score = load(sample_place(i, count));
      bits_[i] = std::bit_cast<std::int32_t>(score == score ? score : -kInfinity);
    }
  }

  // The score that `rank` of the sample reach; -inf if it has no more.
  float reached_by(std::size_t rank) const {
    if (rank >= kSampleSize) return -kInfinity;
    const Pool pool(bits_, kSampleSize);
    return find_cut(pool, rank, pool.smallest()).at;
  }

 private:
  HWY_ALIGN std::int32_t bits_[kSampleSize];
};

// Ranks of the sample below and above the one that `keep` of `count` should have.
struct Ranks {
  Ranks(std::size_t keep, std::size_t count) {
    const double expected = static_cast<double>(keep) / static_cast<double>(count) * static_cast<double>(kSampleSize);
    const double margin = 4.0 * std::sqrt(expected) + 2.0;
    low = static_cast<std::size_t>(expected + margin) + 1;
    high = expected > margin ? static_cast<std::size_t>(expected - margin) : 0;
  }
  std::size_t low, high;
};

// Group numbers going out one behind the other. Whole vectors are written as long as later ones cover what is too much.
class Writer {
 public:
  Writer(std::int32_t* to, std::size_t total) : to_(to), total_(total) {}

  HWY_INLINE void put(VI groups, MF mask) {
    const I32 di;
    const VI packed = hn::Compress(groups, hn::RebindMask(di, mask));
    const std::size_t n = count_of(mask);
    if (count_ + kLanes <= total_) {
      hn::StoreU(packed, di, to_ + count_);
    } else {
      HWY_ALIGN std::int32_t lanes[kLanes];
      hn::Store(packed, di, lanes);
      std::copy_n(lanes, n, to_ + count_);
    }
    count_ += n;
  }

 private:
  std::int32_t* to_;
  const std::size_t total_;
  std::size_t count_ = 0;
};

// All groups of the task, in position order.
class AllGroups {
 public:
  explicit AllGroups(std::span<const float> scores) : scores_(scores), whole_(scores.size() - scores.size() % kLanes) {
    fill_tail(tail_, whole_, scores.size(), [scores](std::size_t i) { return scores[i]; });
  }
  std::size_t size() const { return scores_.size(); }
  HWY_INLINE VF scores(std::size_t i) const { return i < whole_ ? hn::LoadU(F32(), scores_.data() + i) : hn::Load(F32(), tail_); }
  HWY_INLINE VI groups(std::size_t i) const { return hn::Iota(I32(), static_cast<std::int32_t>(i)); }

 private:
  const std::span<const float> scores_;
  const std::size_t whole_;
  HWY_ALIGN float tail_[kLanes];
};

// The collected few, in position order; room for whole vectors of groups.
class FewGroups {
 public:
  FewGroups(const std::int32_t* groups, const std::int32_t* bits, std::size_t count)
      : groups_(groups), bits_(bits), count_(count), whole_(count - count % kLanes) {
    fill_tail(tail_, whole_, count, [bits](std::size_t i) { return score_at(bits, i); });
  }
  std::size_t size() const { return count_; }
  HWY_INLINE VF scores(std::size_t i) const { return i < whole_ ? load_bits(bits_ + i) : hn::Load(F32(), tail_); }
  HWY_INLINE VI groups(std::size_t i) const { return hn::LoadU(I32(), groups_ + i); }

 private:
  const std::int32_t* groups_;
  const std::int32_t* bits_;
  const std::size_t count_;
  const std::size_t whole_;
  HWY_ALIGN float tail_[kLanes];
};

// Of a vector's lanes above or at the cut, those that fit.
HWY_INLINE MF admit(VF scores, VF at, std::size_t equals) {
  const F32 d;
  HWY_ALIGN float lanes[kLanes];
  hn::Store(scores, d, lanes);
  const float cut = hn::GetLane(at);
  for (float& score : lanes) {
    const bool stays = score > cut || (score == cut && equals > 0);
    if (score == cut && equals > 0) --equals;
    score = stays ? 1.0f : 0.0f;
  }
  return hn::Gt(hn::Load(d, lanes), hn::Zero(d));
}

template <class Groups>
HWY_INLINE void emit(const Groups& from, Cut cut, Writer writer) {
  const VF at = hn::Set(F32(), cut.at);
  std::size_t i = 0;
  for (; i < from.size(); i += kLanes) {
    const VF scores = from.scores(i);
    const std::size_t equals = count_of(hn::Eq(scores, at));
    const bool last = equals > cut.equals;
    writer.put(from.groups(i), last ? admit(scores, at, cut.equals) : at_least(scores, at));
    if (last) break;
    cut.equals -= equals;
  }
  for (i += kLanes; i < from.size(); i += kLanes) writer.put(from.groups(i), hn::Gt(from.scores(i), at));
}

std::int64_t first_nan(std::span<const float> scores) {
  const auto nan = std::find_if(scores.begin(), scores.end(), [](float s) { return s != s; });
  return nan == scores.end() ? -1 : nan - scores.begin();
}

// Packs those of `count` scores that lie in [low, high] to the front; the array may be its own target.
template <class Load>
HWY_INLINE std::size_t pack_between(std::size_t count, Load load, float low, float high, std::int32_t* to) {
  const F32 d;
  const I32 di;
  const VF least = hn::Set(d, low);
  const VF most = hn::Set(d, high);
  std::size_t packed = 0;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const VF scores = load(i);
    const MF inside = hn::And(hn::Ge(scores, least), hn::Le(scores, most));
    // Never past what has been read.
    hn::StoreU(hn::BitCast(di, hn::Compress(scores, inside)), di, to + packed);
    packed += count_of(inside);
  }
  return packed;
}

// As find_cut, for any number of scores, which it consumes: the interval that holds the cut shrinks by samples.
Cut narrow_cut(std::int32_t* bits, std::size_t count, std::size_t keep) {
  constexpr int kRounds = 6;  // each leaves about a fifth; were one input to resist, halving its rest is linear too
  for (int round = 0; round < kRounds && count > kDirect; ++round) {
    const Sample sample(count, [bits](std::size_t i) { return score_at(bits, i); });
    const Ranks ranks(keep, count);
    float low = sample.reached_by(ranks.low);
    float high = ranks.high == 0 ? kInfinity : sample.reached_by(ranks.high);
    const Pool pool(bits, count);
    const std::size_t reach_low = pool.at_least(low);
    const std::size_t above = high < kInfinity ? pool.at_least(score_of(key_of(high) + 1)) : 0;
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
    const std::size_t whole = count - count % kLanes;
    std::size_t packed = pack_between(count, [bits](std::size_t i) HWY_ATTR { return load_bits(bits + i); }, low, high, bits);
    for (std::size_t i = whole; i < count; ++i) {
      if (score_at(bits, i) >= low && score_at(bits, i) <= high) bits[packed++] = bits[i];
    }
    count = packed;
  }
  const Pool pool(bits, count);
  return find_cut(pool, keep, pool.smallest());
}

// By the cut of all scores.
Selected select_among_all(const SelectTask& task) {
  const std::span<const float> scores = task.scores;
  std::int32_t* bits = task.scratch.data();
  std::size_t count = pack_between(scores.size(), [scores](std::size_t i) HWY_ATTR { return hn::LoadU(F32(), scores.data() + i); }, -kInfinity, kInfinity, bits);
  for (std::size_t i = scores.size() - scores.size() % kLanes; i < scores.size(); ++i) {
    if (scores[i] == scores[i]) bits[count++] = std::bit_cast<std::int32_t>(scores[i]);
  }
  if (count < scores.size() && task.nan == NanPolicy::kRefuse) return {0, first_nan(scores)};
  const std::size_t keep = static_cast<std::size_t>(std::min<std::int64_t>(task.keep, static_cast<std::int64_t>(count)));
  if (keep == 0) return {0, -1};
  const Cut cut = keep == count ? Cut{-kInfinity, count} : narrow_cut(bits, count, keep);
  emit(AllGroups(scores), cut, Writer(task.chosen.data(), keep));
  return {static_cast<std::int64_t>(keep), -1};
}

// What reaches a bound, in position order, never more than there is room for.
class Collector {
 public:
  explicit Collector(const SelectTask& task)
      : scores_(task.scores), keep_(static_cast<std::size_t>(task.keep)), groups_(task.scratch.data()), room_(room_for(task)), bits_(groups_ + room_) {}

  // Half of the scratch holds groups, half their scores.
  static std::size_t room_for(const SelectTask& task) {
    const std::size_t half = task.scores.size() / 2;
    return std::min(half - half % kLanes, std::max(kRoom, 4 * static_cast<std::size_t>(task.keep)));
  }
  // Whether a full room leaves as much again when it is cut down.
  static bool suits(const SelectTask& task) {
    const std::size_t room = room_for(task);
    return task.scores.size() >= 2 * kSampleSize && task.keep <= static_cast<std::int64_t>(room / 2) && room >= 4 * kChunk;
  }

  // False if a NaN was met.
  bool collect(float bound) {
    bound_ = bound;
    count_ = 0;
    strict_ = false;
    std::size_t begin = 0;
    const std::size_t whole = scores_.size() - scores_.size() % kChunk;
    VecMax worst = hn::Zero(U32());
    for (; begin < whole; begin += kChunk) {
      make_room();
      worst = strict_ ? chunk(begin, worst, [](VF s, VF b) HWY_ATTR { return hn::Gt(s, b); })
                      : chunk(begin, worst, [](VF s, VF b) HWY_ATTR { return hn::Ge(s, b); });
    }
    make_room();
    bool nan = has_nan(worst);
    for (; begin < scores_.size(); ++begin) {
      const float score = scores_[begin];
      nan = nan || score != score;
      if (strict_ ? score > bound_ : score >= bound_) groups_[count_++] = static_cast<std::int32_t>(begin);
    }
    return !nan;
  }

  std::size_t count() const { return count_; }

  // Writes the best `keep`, or all if there are no more.
  std::size_t write(std::int32_t* chosen) {
    if (count_ <= keep_) {
      std::copy_n(groups_, count_, chosen);
      return count_;
    }
    const Cut best = cut();  // fills bits_
    emit(FewGroups(groups_, bits_, count_), best, Writer(chosen, keep_));
    return keep_;
  }

 private:
  using VecMax = hn::Vec<U32>;

  // Without its sign an IEEE number orders as its bits do, with NaN above all.
  static bool has_nan(VecMax worst) { return hn::GetLane(hn::MaxOfLanes(U32(), worst)) > 0xff000000u; }

  template <class Reaches>
  HWY_INLINE VecMax chunk(std::size_t begin, VecMax worst, Reaches reaches) {
    const F32 d;
    const I32 di;
    const U32 du;
    const VF bound = hn::Set(d, bound_);
    const VI width = hn::Set(di, static_cast<std::int32_t>(kLanes));
    VI groups = hn::Iota(di, static_cast<std::int32_t>(begin));
    std::size_t count = count_;
    HWY_UNROLL(4)
    for (std::size_t i = begin; i < begin + kChunk; i += kLanes) {
      const VF scores = hn::LoadU(d, scores_.data() + i);
      const MF mask = reaches(scores, bound);
      hn::StoreU(hn::Compress(groups, hn::RebindMask(di, mask)), di, groups_ + count);
      count += count_of(mask);
      groups = hn::Add(groups, width);
      const VecMax raw = hn::BitCast(du, scores);
      worst = hn::Max(worst, hn::Add(raw, raw));
    }
    count_ = count;
    return worst;
  }

  // Once `keep` reach the bound, a later equal of it cannot be among the best.
  void make_room() {
    if (count_ >= keep_) strict_ = true;
    if (count_ + kChunk + kLanes > room_) cut_down();
  }

  Cut cut() {
    for (std::size_t i = 0; i < count_; ++i) bits_[i] = std::bit_cast<std::int32_t>(scores_[static_cast<std::size_t>(groups_[i])]);
    return find_cut(Pool(bits_, count_), keep_, bound_);
  }

  void cut_down() {
    const Cut best = cut();
    emit(FewGroups(groups_, bits_, count_), best, Writer(groups_, keep_));
    count_ = keep_;
    bound_ = best.at;
    strict_ = true;
  }

  const std::span<const float> scores_;
  const std::size_t keep_;
  std::int32_t* const groups_;
  const std::size_t room_;
  std::int32_t* const bits_;
  std::size_t count_ = 0;
  float bound_ = 0.0f;
  bool strict_ = false;
};

// By the few that reach a bound drawn from a sample.
Selected select_among_few(const SelectTask& task) {
  const std::span<const float> scores = task.scores;
  const Sample sample(scores.size(), [scores](std::size_t i) { return scores[i]; });
  float bound = sample.reached_by(Ranks(static_cast<std::size_t>(task.keep), scores.size()).low);
  Collector collector(task);
  bool clean = collector.collect(bound);
  if (collector.count() < static_cast<std::size_t>(task.keep) && bound > -kInfinity) clean = collector.collect(-kInfinity);
  if (!clean && task.nan == NanPolicy::kRefuse) return {0, first_nan(scores)};
  return {static_cast<std::int64_t>(collector.write(task.chosen.data())), -1};
}

Selected select(const SelectTask& task) {
  return task.keep > 0 && Collector::suits(task) ? select_among_few(task) : select_among_all(task);
}

}  // namespace

const SelectKernels* select_table() {
  static const SelectKernels table{hwy::TargetName(HWY_TARGET), select};
  return &table;
}

#endif  // fused multiply-add

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"

namespace seriatim {
namespace {

HWY_EXPORT(select_table);

}  // namespace

const SelectKernels& select_kernels(Kernels kernels) {
  return kernels.is_reference() ? select_reference() : *SERIATIM_DISPATCH(select_table, kernels.target())();
}

}  // namespace seriatim
#endif  // HWY_ONCE
