// Logits with a lane per key instead of a lane per column: for columns that would leave many lanes of their last vector
// idle. Keys are turned first, so that one dim of many keys stands together. Once per instruction set.
#if defined(SERIATIM_ATTEND_KEY_LANES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_KEY_LANES_INL_HPP_
#undef SERIATIM_ATTEND_KEY_LANES_INL_HPP_
#else
#define SERIATIM_ATTEND_KEY_LANES_INL_HPP_
#endif

#include <hwy/highway.h>

#include "attend/tiles-inl.hpp"
#include "base/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

inline constexpr std::size_t kLaneKeys = 2 * kLanes;  // keys of one tile
inline constexpr std::size_t kTurnedDims = 8;         // head dims must be a multiple: no load reaches past a key
inline constexpr std::size_t kTurnedWords = 64;       // of each key in one block: two blocks stay in the first level

// Four words of each of the rows 0, 4, 8 and so on, one row per block of 128 bits.
template <typename D>
HWY_INLINE hn::Vec<D> load_blocks(D d, const std::byte* const* rows, std::size_t offset_bytes) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return load_bytes(d, *rows + offset_bytes);
  } else {
    constexpr hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows + hn::MaxLanes(half), offset_bytes),
                       load_blocks(half, rows, offset_bytes));
  }
}

// to[word * stride + row] = word of row, for kLanes rows and four words of 32 bits.
HWY_INLINE void turn_four(const std::byte* const* rows, std::size_t offset_bytes, float* HWY_RESTRICT to,
                          std::size_t stride) {
  constexpr FloatTag d;
  constexpr hn::Repartition<double, FloatTag> pairs;
  const auto store = [&](auto upper, auto lower, std::size_t word) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, hn::BitCast(pairs, lower), hn::BitCast(pairs, upper))), d,
               to + word * stride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, hn::BitCast(pairs, lower), hn::BitCast(pairs, upper))), d,
               to + (word + 1) * stride);
  };
  const auto row0 = load_blocks(d, rows, offset_bytes);
  const auto row1 = load_blocks(d, rows + 1, offset_bytes);
  const auto row2 = load_blocks(d, rows + 2, offset_bytes);
  const auto row3 = load_blocks(d, rows + 3, offset_bytes);
  store(hn::InterleaveLower(d, row2, row3), hn::InterleaveLower(d, row0, row1), 0);
  store(hn::InterleaveUpper(d, row2, row3), hn::InterleaveUpper(d, row0, row1), 2);
}

// Turned keys: kLaneKeys words for each word of a key, which holds one dim, or two of bf16.
template <typename Stored>
HWY_INLINE void multiply_word(const float* HWY_RESTRICT word, const float* HWY_RESTRICT queries, std::size_t stride,
                              auto&& add) {
  constexpr FloatTag d;
  constexpr WordTag words;
  const auto v0 = hn::LoadU(d, word);
  const auto v1 = hn::LoadU(d, word + kLanes);
  if constexpr (Stored::kBytes == sizeof(float)) {
    add(queries, v0, v1);
  } else {
    const auto low = [](FloatVec v)
                         HWY_ATTR { return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::BitCast(WordTag(), v))); };
    const auto high = [&](FloatVec v) HWY_ATTR { return hn::And(v, hn::BitCast(d, hn::Set(words, 0xffff0000u))); };
    add(queries, low(v0), low(v1));
    add(queries + stride, high(v0), high(v1));
  }
}

// kLaneKeys keys, so many dims of each -> kLaneKeys words for each of their words.
template <typename Stored>
HWY_INLINE void turn(const std::byte* const* keys, std::size_t offset_bytes, std::size_t dims, float* to) {
  for (std::size_t word = 0; word < dims * Stored::kBytes / sizeof(float);
       word += 4, offset_bytes += 4 * sizeof(float), to += 4 * kLaneKeys) {
    turn_four(keys, offset_bytes, to, kLaneKeys);
    turn_four(keys + kLanes, offset_bytes, to + kLanes, kLaneKeys);
  }
}

// logits[column][key] of kColumns columns and kLaneKeys keys.
// Takes   queries [dims][stride], the tile's first column first; turned keys of as many dims
template <typename Stored, std::size_t kColumns>
HWY_NOINLINE void key_lanes_tile(const float* HWY_RESTRICT queries, std::size_t stride, const float* HWY_RESTRICT keys,
                                 DimBlock block, float scale, float* HWY_RESTRICT logits, Fetch& fetch) {
  constexpr std::make_index_sequence<kColumns * 2> all;
  FloatVec tile[kColumns * 2];
  if (block.first) {
    clear_tile(tile, all);
  } else {
    load_tile<2>(logits, kLaneKeys, tile, all);
  }
  constexpr std::size_t kDims = sizeof(float) / Stored::kBytes;  // of a word
  for (std::size_t i = 0; i < block.dims / (2 * kDims); ++i) {
    fetch.step();
    for (std::size_t word = 0; word < 2; ++word, queries += kDims * stride, keys += kLaneKeys) {
      multiply_word<Stored>(keys, queries, stride, [&](const float* numbers, FloatVec v0, FloatVec v1) HWY_ATTR {
        const FloatVec vecs[2] = {v0, v1};
        add_outer<2, 1>(numbers, vecs, tile, all);
      });
    }
  }
  if (block.last) scale_tile(scale, tile, all);
  store_tile<2>(tile, logits, kLaneKeys, all);
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
