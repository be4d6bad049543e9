// The weighted sums of a split's values for the heads of one query, folded into what came before. Once per instruction
// set.
#if defined(SERIATIM_ATTEND_VALUE_SUMS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_VALUE_SUMS_INL_HPP_
#undef SERIATIM_ATTEND_VALUE_SUMS_INL_HPP_
#else
#define SERIATIM_ATTEND_VALUE_SUMS_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>

#include "attend/block_scratch.hpp"
#include "attend/fetch.hpp"
#include "attend/tiles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

template <typename Stored>
class ValueSums {
 public:
  ValueSums(const Geometry& geometry, const BlockScratch& scratch, std::size_t heads)
      : strip_(scratch.strip()),
        heads_(heads),
        value_dim_(static_cast<std::size_t>(geometry.value_dim())),
        head_tiles_((heads_ + kMostTileHeads - 1) / kMostTileHeads) {
    for (std::size_t j = 0; j < strip_rows_.size(); ++j)
      strip_rows_[j] = reinterpret_cast<const std::byte*>(strip_ + j * kPair);
  }

  // How many steps of `fetch` sum() takes.
  std::size_t fetch_steps(std::size_t entries) const {
    return entries * head_tiles_ * ((value_dim_ + kPair - 1) / kPair);
  }

  // Takes   weights of all heads; meanwhile something is fetched
  void sum(Weighted split, const FoldInto& fold, Fetch& fetch) {
    for (std::size_t dim = 0; dim < value_dim_; dim += kPair) {
      split.offset_bytes = dim * Stored::kBytes;
      // What does not fill two vectors, or is read more than twice, is widened first.
      const bool whole = dim + kPair <= value_dim_;
      if (whole && (head_tiles_ <= 2 || Stored::kBytes == sizeof(float))) {
        sum_dims<Stored>(split, dim, fold, fetch);
      } else {
        widen_strip(split, whole ? kPair : value_dim_ - dim);
        sum_dims<StoredF32>({strip_rows_.data(), 0, split.weights, split.stride, split.entries}, dim, fold, fetch);
      }
    }
  }

 private:
  static constexpr std::size_t kPair = 2 * kLanes;

  // Two vectors of dims from `dim`, all heads in tiles as even as can be.
  template <typename From>
  void sum_dims(const Weighted& split, std::size_t dim, const FoldInto& fold, Fetch& fetch) {
    for (std::size_t tile = 0; tile < head_tiles_; ++tile) {
      const std::size_t head = tile * heads_ / head_tiles_;
      const std::size_t end = (tile + 1) * heads_ / head_tiles_;
      Weighted in = split;
      in.weights += head;
      const FoldInto into{fold.sums + head * fold.stride + dim, fold.stride,
                          fold.a == nullptr ? nullptr : fold.a + head, fold.b + head};
      with_heads(end - head, [&](auto heads) HWY_ATTR { values_tile<From, decltype(heads)::value>(in, into, fetch); });
    }
  }

  // `dims` dims of every entry's value -> the strip, padded with zeros to two vectors; in the order of load_pair where
  // they fill them.
  void widen_strip(const Weighted& split, std::size_t dims) {
    constexpr FloatTag d;
    float* to = strip_;
    for (std::size_t j = 0; j < split.entries; ++j, to += kPair) {
      const std::byte* from = split.values[j] + split.offset_bytes;
      if (dims == kPair) {
        FloatVec v0, v1;
        Stored::load_pair(from, v0, v1);
        hn::StoreU(v0, d, to);
        hn::StoreU(v1, d, to + kLanes);
      } else {
        widen<Stored>(from, dims, to);
        std::fill_n(to + dims, kPair - dims, 0.0f);
      }
    }
  }

  float* const strip_;  // [kSplitEntries][kPair]
  const std::size_t heads_;
  const std::size_t value_dim_;
  const std::size_t head_tiles_;
  std::array<const std::byte*, kSplitEntries> strip_rows_;
};

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
