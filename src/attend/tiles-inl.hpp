// The two inner products of attention on tiles of registers. Once per instruction set.
//
// A lane is always one output element: of a logit (query head x entry) or of an output (head x value dim), so every
// chain of the contract runs inside one lane and any width gives the same bits.
#if defined(SERIATIM_ATTEND_TILES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_TILES_INL_HPP_
#undef SERIATIM_ATTEND_TILES_INL_HPP_
#else
#define SERIATIM_ATTEND_TILES_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "attend/block_scratch.hpp"
#include "attend/fetch.hpp"
#include "base/widen-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

inline constexpr std::size_t kLanes = hn::MaxLanes(FloatTag());
inline constexpr bool kFewRegisters = HWY_ARCH_X86 && HWY_TARGET > HWY_AVX3;  // 16, elsewhere 32

// Keys of one tile of logits: as many accumulators as the registers hold beside one broadcast and the queries' vectors.
template <std::size_t kVecs>
inline constexpr std::size_t kTileKeys = (kVecs == 1 ? 16 : 8) / (kFewRegisters ? 2 : 1);
inline constexpr std::size_t kMostTileVecs = 3;
// Heads of one tile of outputs, two vectors of dims each.
inline constexpr std::size_t kMostTileHeads = kFewRegisters ? 6 : 12;

// A tile is a flat array of registers [rows][kVecs]; kT runs over it at compile time, because only arrays that are
// indexed by constants stay in registers.
template <std::size_t kVecs, std::size_t... kT>
HWY_INLINE void load_tile(const float* from, std::size_t stride, FloatVec (&tile)[sizeof...(kT)],
                          std::index_sequence<kT...>) {
  ((tile[kT] = hn::LoadU(FloatTag(), from + kT / kVecs * stride + kT % kVecs * kLanes)), ...);
}
template <std::size_t kVecs, std::size_t... kT>
HWY_INLINE void store_tile(const FloatVec (&tile)[sizeof...(kT)], float* to, std::size_t stride,
                           std::index_sequence<kT...>) {
  (hn::StoreU(tile[kT], FloatTag(), to + kT / kVecs * stride + kT % kVecs * kLanes), ...);
}
template <std::size_t... kT>
HWY_INLINE void clear_tile(FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...>) {
  ((tile[kT] = hn::Zero(FloatTag())), ...);
}
template <std::size_t... kT>
HWY_INLINE void scale_tile(float scale, FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...>) {
  ((tile[kT] = hn::Mul(tile[kT], hn::Set(FloatTag(), scale))), ...);
}
// tile[row][v] = fma(numbers[row * stride], vecs[v], tile[row][v])
template <std::size_t kVecs, std::size_t kStride, std::size_t... kT>
HWY_INLINE void add_outer(const float* HWY_RESTRICT numbers, const FloatVec (&vecs)[kVecs],
                          FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...>) {
  ((tile[kT] = hn::MulAdd(hn::Set(FloatTag(), numbers[kT / kVecs * kStride]), vecs[kT % kVecs], tile[kT])), ...);
}

// Where a tile of logits stands in the chains over dims.
struct DimBlock {
  std::size_t dims = 0;
  bool first = false;
  bool last = false;  // then the logits are scaled
};

// Keys of the next tile, to be widened meanwhile: loads and stores have room beside the products.
struct NextKeys {
  const std::byte* const* keys = nullptr;  // [kTileKeys]
  std::size_t offset_bytes = 0;            // to the next block's first dim; kDimBlock dims are widened
  float* to = nullptr;                     // [kTileKeys][kDimBlock]
};

template <std::size_t kVecs, std::size_t... kT>
HWY_INLINE void multiply_dim(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT keys,
                             FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...> all) {
  FloatVec columns[kVecs];
  load_tile<kVecs>(queries, 0, columns, std::make_index_sequence<kVecs>());
  add_outer<kVecs, kDimBlock>(keys, columns, tile, all);
}

// The products of a whole block of dims, between them the widening of as many dims of the next keys.
template <typename Stored, std::size_t kVecs, std::size_t... kT>
HWY_INLINE void multiply_and_widen(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT keys,
                                   const NextKeys& next, Fetch& fetch, FloatVec (&tile)[sizeof...(kT)],
                                   std::index_sequence<kT...> all) {
  constexpr std::size_t kDims = kDimBlock / kTileKeys<kVecs>;  // multiplied while one key is widened
  constexpr std::size_t kWidened = kDimBlock / kLanes;         // vectors of one key
  constexpr std::size_t kSteps = std::min(kDims, kWidened);
  for (std::size_t k = 0; k < kTileKeys<kVecs>; ++k) {
    const std::byte* from = next.keys[k] + next.offset_bytes;
    float* HWY_RESTRICT to = next.to + k * kDimBlock;
    fetch.step();
    for (std::size_t step = 0; step < kSteps; ++step) {
      for (std::size_t w = 0; w < kWidened / kSteps; ++w, from += kLanes * Stored::kBytes, to += kLanes) {
        hn::StoreU(Stored::load(from), FloatTag(), to);
      }
      for (std::size_t i = 0; i < kDims / kSteps; ++i, queries += kVecs * kLanes, ++keys)
        multiply_dim<kVecs>(queries, keys, tile, all);
    }
  }
}

// logits[key][column] for kTileKeys keys and kVecs vectors of columns (heads of queries).
// Takes   queries [dims][kVecs * kLanes], keys [kTileKeys][kDimBlock]; next.keys null: nothing to widen
template <typename Stored, std::size_t kVecs>
HWY_NOINLINE void logits_tile(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT keys, DimBlock block,
                              float scale, float* HWY_RESTRICT logits, std::size_t stride, const NextKeys& next,
                              Fetch& fetch) {
  constexpr std::make_index_sequence<kTileKeys<kVecs> * kVecs> all;
  FloatVec tile[kTileKeys<kVecs> * kVecs];
  if (block.first) {
    clear_tile(tile, all);
  } else {
    load_tile<kVecs>(logits, stride, tile, all);
  }
  if (next.keys != nullptr) {
    multiply_and_widen<Stored, kVecs>(queries, keys, next, fetch, tile, all);
  } else {
    for (std::size_t i = 0; i < block.dims; ++i) multiply_dim<kVecs>(queries + i * kVecs * kLanes, keys + i, tile, all);
  }
  if (block.last) scale_tile(scale, tile, all);
  store_tile<kVecs>(tile, logits, stride, all);
}

// Entries of one split and what they weigh.
struct Weighted {
  const std::byte* const* values = nullptr;  // [entries]
  std::size_t offset_bytes = 0;              // from there to the tile's first dim
  const float* weights = nullptr;            // [entries][stride], the tile's first head first
  std::size_t stride = 0;
  std::size_t entries = 0;
};

// How a split joins what came before: sums = fma(sums, a, split * b), or sums = split where nothing did.
struct FoldInto {
  float* sums = nullptr;  // [heads][stride]
  std::size_t stride = 0;
  const float* a = nullptr;  // [heads]; null: nothing came before
  const float* b = nullptr;
};

template <std::size_t... kT>
HWY_INLINE void fold_tile(const FoldInto& fold, FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...>) {
  constexpr FloatTag d;
  ((tile[kT] = hn::MulAdd(hn::LoadU(d, fold.sums + kT / 2 * fold.stride + kT % 2 * kLanes), hn::Set(d, fold.a[kT / 2]),
                          hn::Mul(tile[kT], hn::Set(d, fold.b[kT / 2])))),
   ...);
}

// Two vectors of value dims for kHeads heads, over the entries of a split.
template <typename Stored, std::size_t kHeads>
HWY_NOINLINE void values_tile(const Weighted& in, const FoldInto& fold, Fetch& fetch) {
  constexpr std::make_index_sequence<kHeads * 2> all;
  FloatVec tile[kHeads * 2];
  clear_tile(tile, all);
  const auto add_entry = [&](std::size_t j) HWY_ATTR {
    FloatVec dims[2];
    Stored::load_pair(in.values[j] + in.offset_bytes, dims[0], dims[1]);
    add_outer<2, 1>(in.weights + j * in.stride, dims, tile, all);
  };
  for (std::size_t j = 0; j < in.entries; ++j) {
    fetch.step();
    add_entry(j);
  }
  if (fold.a != nullptr) fold_tile(fold, tile, all);
  store_tile<2>(tile, fold.sums, fold.stride, all);
}

// Calls call(std::integral_constant<size_t, heads>), heads in 1 .. kMostTileHeads.
template <std::size_t kHeads = kMostTileHeads, typename Call>
HWY_INLINE void with_heads(std::size_t heads, Call&& call) {
  if constexpr (kHeads > 1) {
    if (heads < kHeads) return with_heads<kHeads - 1>(heads, call);
  }
  call(std::integral_constant<std::size_t, kHeads>());
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
