// The two inner products of attention on tiles of registers. Once per instruction set.
//
// A lane is always one output element: of a logit (query head x entry) or of an output (head x value dim), so every chain
// of the contract runs inside one lane and any width gives the same bits.
#if defined(SERIATIM_ATTEND_TILES_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_TILES_INL_HPP_
#undef SERIATIM_ATTEND_TILES_INL_HPP_
#else
#define SERIATIM_ATTEND_TILES_INL_HPP_
#endif

#include <cstddef>
#include <utility>

#include <hwy/highway.h>

#include "attend/block_scratch.hpp"
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
HWY_INLINE void load_tile(const float* from, std::size_t stride, FloatVec (&tile)[sizeof...(kT)], std::index_sequence<kT...>) {
  ((tile[kT] = hn::LoadU(FloatTag(), from + kT / kVecs * stride + kT % kVecs * kLanes)), ...);
}
template <std::size_t kVecs, std::size_t... kT>
HWY_INLINE void store_tile(const FloatVec (&tile)[sizeof...(kT)], float* to, std::size_t stride, std::index_sequence<kT...>) {
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
HWY_INLINE void add_outer(const float* HWY_RESTRICT numbers, const FloatVec (&vecs)[kVecs], FloatVec (&tile)[sizeof...(kT)],
                          std::index_sequence<kT...>) {
  ((tile[kT] = hn::MulAdd(hn::Set(FloatTag(), numbers[kT / kVecs * kStride]), vecs[kT % kVecs], tile[kT])), ...);
}

// Where a tile of logits stands in the chains over dims.
struct DimBlock {
  std::size_t dims = 0;
  bool first = false;
  bool last = false;  // then the logits are scaled
};

// logits[key][column] for kTileKeys keys and kVecs vectors of columns (heads of queries).
// Takes   queries [dims][kVecs * kLanes], keys [kTileKeys][kDimBlock]
template <std::size_t kVecs>
HWY_NOINLINE void logits_tile(const float* HWY_RESTRICT queries, const float* HWY_RESTRICT keys, DimBlock block, float scale,
                              float* HWY_RESTRICT logits, std::size_t stride) {
  constexpr std::make_index_sequence<kTileKeys<kVecs> * kVecs> all;
  FloatVec tile[kTileKeys<kVecs> * kVecs];
  if (block.first) {
    clear_tile(tile, all);
  } else {
    load_tile<kVecs>(logits, stride, tile, all);
  }
  for (std::size_t i = 0; i < block.dims; ++i) {
    FloatVec columns[kVecs];
    load_tile<kVecs>(queries + i * kVecs * kLanes, 0, columns, std::make_index_sequence<kVecs>());
    add_outer<kVecs, kDimBlock>(keys + i, columns, tile, all);
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
                          hn::Mul(tile[kT], hn::Set(d, fold.b[kT / 2])))), ...);
}

// Two vectors of value dims for kHeads heads, over the entries of a split.
template <typename Stored, std::size_t kHeads>
HWY_NOINLINE void values_tile(const Weighted& in, const FoldInto& fold) {
  constexpr std::make_index_sequence<kHeads * 2> all;
  FloatVec tile[kHeads * 2];
  clear_tile(tile, all);
  const float* HWY_RESTRICT weights = in.weights;
  for (std::size_t j = 0; j < in.entries; ++j, weights += in.stride) {
    FloatVec dims[2];
    Stored::load_pair(in.values[j] + in.offset_bytes, dims[0], dims[1]);
    add_outer<2, 1>(weights, dims, tile, all);
  }
  if (fold.a != nullptr) fold_tile(fold, tile, all);
  store_tile<2>(tile, fold.sums, fold.stride, all);
}

template <typename Stored>
HWY_INLINE void values_tile(std::size_t heads, const Weighted& in, const FoldInto& fold) {
  switch (heads) {
    case 1: return values_tile<Stored, 1>(in, fold);
    case 2: return values_tile<Stored, 2>(in, fold);
    case 3: return values_tile<Stored, 3>(in, fold);
    case 4: return values_tile<Stored, 4>(in, fold);
    case 5: return values_tile<Stored, 5>(in, fold);
    case 6: return values_tile<Stored, 6>(in, fold);
    default: break;
  }
  if constexpr (kMostTileHeads > 6) {
    switch (heads) {
      case 7: return values_tile<Stored, 7>(in, fold);
      case 8: return values_tile<Stored, 8>(in, fold);
      case 9: return values_tile<Stored, 9>(in, fold);
      case 10: return values_tile<Stored, 10>(in, fold);
      case 11: return values_tile<Stored, 11>(in, fold);
      default: return values_tile<Stored, 12>(in, fold);
    }
  }
}

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
