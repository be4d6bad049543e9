// Selection without a sort: the input stands in position order already, so all that is sought is the cut, and one pass
// emits what lies above it.
//
// A budget far below the number of groups takes a single pass over the scores: a sample gives a bound that is very
// likely below the cut but not by much, the pass collects what reaches it, and the cut is found among those few. Where
// the sample misled, too few were collected or their room was too small. A second pass then needs no luck: its bound is
// the cut of the greatest of every few scores, which as many scores as are sought reach for sure, and only so many
// times those few. So the result never depends on the sample, and three passes are the most for any input. A larger
// budget, or few groups, finds the cut of all scores in a copy, then emits.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "select/select_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "select/select_simd.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/highway.h>

#include "base/simd_target.hpp"
#include "select/cut-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

#if !SERIATIM_HAS_SIMD

SERIATIM_NO_KERNEL_TABLE(SelectKernels, select_table)

#else

namespace {

constexpr std::size_t kChunk = 512;  // scores between two looks at how many were collected
constexpr std::size_t kRoom = 8192;  // for the collected, unless the budget needs more

// The groups from `first` on, one per lane.
HWY_INLINE VI groups_from(std::size_t first) {
  HWY_ALIGN static constexpr std::int32_t kLane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return hn::Add(hn::Set(I32(), static_cast<std::int32_t>(first)), hn::Load(I32(), kLane));
}

// All groups of the task.
struct AllGroups {
  std::span<const float> scores;

  std::size_t size() const { return scores.size(); }
  HWY_INLINE VF scores_at(std::size_t i) const { return hn::LoadU(F32(), scores.data() + i); }
  HWY_INLINE VI groups_at(std::size_t i) const { return groups_from(i); }
  float score(std::size_t i) const { return scores[i]; }
  std::int32_t group(std::size_t i) const { return static_cast<std::int32_t>(i); }
};

// The collected few.
struct FewGroups {
  const std::int32_t* groups;
  const std::int32_t* bits;  // of their scores
  std::size_t count;

  std::size_t size() const { return count; }
  HWY_INLINE VF scores_at(std::size_t i) const { return load_bits(bits + i); }
  HWY_INLINE VI groups_at(std::size_t i) const { return hn::LoadU(I32(), groups + i); }
  float score(std::size_t i) const { return score_at(bits, i); }
  std::int32_t group(std::size_t i) const { return groups[i]; }
};

// Writes the groups that the cut leaves, `total` of them, in the order in which they come; `to` may be where they are.
template <class Groups>
HWY_INLINE void emit(const Groups& from, Cut cut, std::int32_t* to, std::size_t total) {
  const VF at = hn::Set(F32(), cut.at);
  std::size_t written = 0;
  std::size_t i = 0;
  const auto put = [&](MF mask) HWY_ATTR {
    if (written + kLanes <= total) {  // later groups will cover what is too much of a whole vector
      written += pack(from.groups_at(i), mask, to + written);
    } else {
      HWY_ALIGN std::int32_t lanes[kLanes];
      const std::size_t count = pack(from.groups_at(i), mask, lanes);
      std::copy_n(lanes, count, to + written);
      written += count;
    }
  };
  const auto one_by_one = [&](std::size_t end) {
    for (; i < end; ++i) {
      const float score = from.score(i);
      const bool equal = score == cut.at && cut.equals > 0;
      if (score > cut.at || equal) to[written++] = from.group(i);
      if (equal) --cut.equals;
    }
  };
  const std::size_t whole = from.size() - from.size() % kLanes;
  for (; i < whole; i += kLanes) {
    const VF scores = from.scores_at(i);
    const std::size_t equals = count_of(hn::Eq(scores, at));
    if (equals > cut.equals) break;
    cut.equals -= equals;
    put(hn::Ge(scores, at));
  }
  if (i < whole) one_by_one(i + kLanes);  // the last equal that fits is among these
  for (; i < whole && written < total; i += kLanes) put(hn::Gt(from.scores_at(i), at));
  if (written < total) one_by_one(from.size());
}

Selected refuse_nan(std::span<const float> scores) {
  return {0, std::find_if(scores.begin(), scores.end(), [](float s) { return s != s; }) - scores.begin()};
}

// By the cut of all scores.
Selected select_among_all(const SelectTask& task) {
  const std::span<const float> scores = task.scores;
  std::int32_t* bits = task.scratch.data();
  std::size_t count = 0;  // that are numbers
  std::size_t i = 0;
  for (; i + kLanes <= scores.size(); i += kLanes) {
    const VF some = hn::LoadU(F32(), scores.data() + i);
    count += pack(hn::BitCast(I32(), some), hn::Eq(some, some), bits + count);
  }
  for (; i < scores.size(); ++i) {
    if (scores[i] == scores[i]) bits[count++] = std::bit_cast<std::int32_t>(scores[i]);
  }
  if (count < scores.size() && task.nan == NanPolicy::kRefuse) return refuse_nan(scores);
  const std::size_t keep =
      static_cast<std::size_t>(std::min<std::int64_t>(task.keep, static_cast<std::int64_t>(count)));
  if (keep == 0) return {0, -1};
  const Cut cut = keep == count ? Cut{-kInfinity, count} : narrow_cut(bits, count, keep);
  emit(AllGroups{scores}, cut, task.chosen.data(), keep);
  return {static_cast<std::int64_t>(keep), -1};
}

enum class Collected { kEnough, kTooFew, kTooMany, kNan };

// What reaches a bound, in position order, never more than there is room for. Where NaN is refused it counts as
// reaching any, so that it is met among the few.
template <NanPolicy kNan>
class Collector {
 public:
  explicit Collector(const SelectTask& task)
      : scores_(task.scores),
        keep_(static_cast<std::size_t>(task.keep)),
        strand_(strand_for(task)),
        groups_(task.scratch.data()),
        room_(room_for(task, strand_)),
        bits_(groups_ + room_) {}

  // Whether a sure bound leaves no more than half of the scratch has room for.
  static bool suits(const SelectTask& task) { return task.scores.size() > kDirect && strand_for(task) > 1; }

  // A bound that at least `keep` scores reach. The scores fall into strands of `strand_`, and it is a cut of their
  // greatest: what passes it lies in the few strands whose greatest does.
  float sure_bound() const {
    const std::size_t whole = scores_.size() - scores_.size() % (strand_ * kMaximaStep);
    std::int32_t* const maxima = groups_;  // as yet unused
    std::size_t count = 0;
    for (std::size_t i = 0; i < whole; i += strand_ * kMaximaStep, count += kMaximaStep) {
      store_maxima(scores_.data() + i, kMaximaStep, strand_, kMaximaStep, maxima + count);
    }
    for (std::size_t i = whole; i < scores_.size(); ++i) maxima[count++] = std::bit_cast<std::int32_t>(scores_[i]);
    return find_cut(Pool(maxima, count), keep_, slack(keep_)).at;
  }

  // Takes   most: to be collected, or a little more, before it gives up
  Collected collect(float bound, std::size_t most) {
    bound_ = bound;
    count_ = 0;
    most_ = std::min(most, room_ - kChunk - kLanes);
    std::size_t i = 0;
    for (const std::size_t head = to_alignment(); i < head; ++i) one(i);
    for (; i + kChunk <= scores_.size() && count_ < keep_ && has_room(); i += kChunk) {
      chunk(i, [](VF s, VF b) HWY_ATTR { return hn::Lt(s, b); }, [](VF s, VF b) HWY_ATTR { return hn::Ge(s, b); });
    }
    // Once `keep` reach the bound, a later equal of it cannot be among the best.
    for (; i + kChunk <= scores_.size() && has_room(); i += kChunk) {
      chunk(i, [](VF s, VF b) HWY_ATTR { return hn::Le(s, b); }, [](VF s, VF b) HWY_ATTR { return hn::Gt(s, b); });
    }
    if (!has_room()) return Collected::kTooMany;
    for (; i < scores_.size(); ++i) one(i);
    if (!load_scores()) return Collected::kNan;
    return count_ < keep_ ? Collected::kTooFew : Collected::kEnough;
  }

  // Writes the best `keep`, or all if there are no more.
  std::size_t write(std::int32_t* chosen) const {
    const std::size_t total = std::min(count_, keep_);
    emit(FewGroups{groups_, bits_, count_}, count_ <= keep_ ? Cut{-kInfinity, count_} : cut(), chosen, total);
    return total;
  }

 private:
  static constexpr std::size_t slack(std::size_t keep) { return keep / 4; }

  // The most that can be collected by a sure bound: all that passes it, and until there are `keep` its equals.
  static std::size_t most_for(std::size_t keep, std::size_t strand) {
    return strand * (keep + slack(keep)) + keep + 2 * (kChunk + kLanes);
  }

  // The longest strand that there is room for, which takes the fewest maxima; 1 if none is.
  static std::size_t strand_for(const SelectTask& task) {
    std::size_t strand = 32;
    while (strand > 1 && 2 * most_for(static_cast<std::size_t>(task.keep), strand) > task.scores.size()) strand /= 2;
    return strand;
  }

  // Half of the scratch holds groups, half their scores.
  static std::size_t room_for(const SelectTask& task, std::size_t strand) {
    const std::size_t groups = task.scores.size();
    const std::size_t room = std::max({most_for(static_cast<std::size_t>(task.keep), strand), kRoom, groups / 64});
    return std::min(room, groups / 2) / kLanes * kLanes;
  }

  // For another chunk, and what is written past its end.
  bool has_room() const { return count_ <= most_; }

  // How many scores lie before the first that whole vectors can be read from without crossing cache lines.
  std::size_t to_alignment() const {
    const auto misplaced = reinterpret_cast<std::uintptr_t>(scores_.data()) % (kLanes * sizeof(float));
    return misplaced == 0 ? 0 : kLanes - misplaced / sizeof(float);
  }

  void one(std::size_t i) {
    const float score = scores_[i];
    const bool reaches = count_ < keep_ ? score >= bound_ : score > bound_;
    if (reaches || (kNan == NanPolicy::kRefuse && score != score)) groups_[count_++] = static_cast<std::int32_t>(i);
  }

  template <class Below, class Reaches>
  HWY_INLINE void chunk(std::size_t begin, Below below, Reaches reaches) {
    const VF bound = hn::Set(F32(), bound_);
    const float* scores = scores_.data();
    std::int32_t* to = groups_ + count_;
    const auto look = [&](std::size_t i) HWY_ATTR {
      const VF some = hn::LoadU(F32(), scores + i);
      return kNan == NanPolicy::kRefuse ? below(some, bound) : reaches(some, bound);
    };
    for (std::size_t i = begin; i < begin + kChunk; i += 64) {
      std::uint64_t found = 0;
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < 64; j += 4 * kLanes) {
        found |= bits_of(look(i + j), look(i + j + kLanes), look(i + j + 2 * kLanes), look(i + j + 3 * kLanes)) << j;
      }
      to = put(kNan == NanPolicy::kRefuse ? ~found : found, static_cast<std::int32_t>(i), to);
    }
    count_ = static_cast<std::size_t>(to - groups_);
  }

  // Two are written whether or not there are any, which spares most of the branches that cannot be foreseen. `hidden`
  // keeps compilers from making branches of it all the same.
  HWY_INLINE static std::int32_t* put(std::uint64_t found, std::int32_t first, std::int32_t* to) {
    std::int32_t* const end = to + std::popcount(found);
    for (int twice = 0; twice < 2; ++twice) {
      found = hidden(found);
      *to++ = first + std::countr_zero(found);  // of none, any place will do
      found &= found - 1;
    }
    for (found = hidden(found); found != 0; found &= found - 1) *to++ = first + std::countr_zero(found);
    return end;
  }

  HWY_INLINE static std::uint64_t hidden(std::uint64_t value) {
    asm("" : "+r"(value));
    return value;
  }

  bool load_scores() const {
    for (std::size_t i = 0; i < count_; ++i)
      bits_[i] = std::bit_cast<std::int32_t>(scores_[static_cast<std::size_t>(groups_[i])]);
    return kNan == NanPolicy::kExclude || Pool(bits_, count_).reach(-kInfinity) == count_;
  }

  Cut cut() const { return find_cut(Pool(bits_, count_), keep_, 0); }

  const std::span<const float> scores_;
  const std::size_t keep_;
  const std::size_t strand_;
  std::int32_t* const groups_;
  const std::size_t room_;
  std::int32_t* const bits_;
  std::size_t count_ = 0;
  std::size_t most_ = 0;
  float bound_ = 0.0f;
};

// By the few that reach a bound drawn from a sample.
template <NanPolicy kNan>
Selected select_among_few(const SelectTask& task) {
  const std::span<const float> scores = task.scores;
  const auto keep = static_cast<std::size_t>(task.keep);
  const Sample sample(scores.data(), scores.size());
  const std::size_t numbers = kNan == NanPolicy::kExclude ? sample.numbers() : kSampleSize;
  Collector<kNan> collector(task);
  const std::size_t rank = Ranks(keep, scores.size()).low;
  const std::size_t twice = 2 * rank * (scores.size() / kSampleSize + 1);  // what the sample says there are
  Collected collected = collector.collect(sample.reached_by_about(rank, numbers), twice + kChunk);
  if (collected == Collected::kTooFew || collected == Collected::kTooMany)
    collected = collector.collect(collector.sure_bound(), scores.size());
  if (collected == Collected::kNan || collected == Collected::kTooMany)
    return refuse_nan(scores);  // a sure bound's many are NaN
  return {static_cast<std::int64_t>(collector.write(task.chosen.data())), -1};
}

Selected select(const SelectTask& task) {
  if (task.keep == 0 || !Collector<NanPolicy::kRefuse>::suits(task)) return select_among_all(task);
  return task.nan == NanPolicy::kRefuse ? select_among_few<NanPolicy::kRefuse>(task)
                                        : select_among_few<NanPolicy::kExclude>(task);
}

}  // namespace

SERIATIM_KERNEL_TABLE(SelectKernels, select_table, select)

#endif  // SERIATIM_HAS_SIMD

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"
SERIATIM_KERNEL_FAMILY(SelectKernels, select_table, select_kernels, select_reference)
#endif  // HWY_ONCE
