// The logits of a chunk: keys times the query heads of a block, a column being a head of a query. Once per instruction
// set.
#if defined(SERIATIM_ATTEND_KEY_PRODUCTS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_KEY_PRODUCTS_INL_HPP_
#undef SERIATIM_ATTEND_KEY_PRODUCTS_INL_HPP_
#else
#define SERIATIM_ATTEND_KEY_PRODUCTS_INL_HPP_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "attend/attend_kernels.hpp"
#include "attend/block_scratch.hpp"
#include "attend/fetch.hpp"
#include "attend/key_lanes-inl.hpp"
#include "attend/tiles-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// The vectors of columns in tiles of at most kMostTileVecs, as even as can be.
class ColumnTiles {
 public:
  explicit ColumnTiles(std::size_t columns)
      : vecs_((columns + kLanes - 1) / kLanes), tiles_((vecs_ + kMostTileVecs - 1) / kMostTileVecs) {}
  std::size_t vecs() const { return vecs_; }
  std::size_t count() const { return tiles_; }
  std::size_t first_vec(std::size_t tile) const { return tile * vecs_ / tiles_; }

 private:
  std::size_t vecs_;
  std::size_t tiles_;
};

template <typename Stored>
class KeyProducts {
 public:
  KeyProducts(const Geometry& geometry, const BlockScratch& scratch, std::size_t queries, std::size_t heads)
      : scratch_(scratch),
        heads_(heads),
        head_dim_(static_cast<std::size_t>(geometry.head_dim())),
        logits_stride_(static_cast<std::size_t>(scratch.logits_stride())),
        scale_(geometry.softmax_scale()),
        columns_(queries * heads_),
        tiles_(columns_),
        lanes_are_keys_(turning_pays()) {}

  // Queries -> [tile][dim][column of the tile], zeros in columns that pad the last vector.
  void load_queries(std::span<const BlockQuery> queries, std::int64_t first_head) {
    std::fill_n(scratch_.queries(), head_dim_ * tiles_.vecs() * kLanes, 0.0f);
    for (std::size_t tile = 0; tile < tiles_.count(); ++tile) {
      const std::size_t first = tiles_.first_vec(tile) * kLanes;
      const std::size_t end = std::min(tiles_.first_vec(tile + 1) * kLanes, columns_);
      const std::size_t width = (tiles_.first_vec(tile + 1) - tiles_.first_vec(tile)) * kLanes;
      for (std::size_t column = first; column < end; ++column) {
        const std::int64_t head = first_head + static_cast<std::int64_t>(column % heads_);
        load_column(queries[column / heads_].query, head, scratch_.queries() + first * head_dim_ + column - first,
                    width);
      }
    }
  }

  // How many steps of `fetch` multiply() takes, about.
  std::size_t fetch_steps(std::size_t entries) const {
    if (!lanes_are_keys_) return entries * (head_dim_ / kDimBlock);
    return (entries + kLaneKeys - 1) / kLaneKeys * column_groups() * (head_dim_ / (2 * kWordDims));
  }

  // The logits of every key and column, scaled -> scratch.logits(); meanwhile something is fetched.
  void multiply(std::span<const std::byte* const> keys, Fetch& fetch) {
    lanes_are_keys_ ? multiply_turned(keys, fetch) : multiply_widened(keys, fetch);
  }

 private:
  // Keys from `first` on and their dims from `dim` on.
  struct Step {
    std::size_t first = 0;
    std::size_t dim = 0;
  };

  // Whether a lane per key leaves fewer lanes idle than a lane per column, by more than it costs to turn the keys.
  bool turning_pays() const {
    constexpr std::size_t kCost = Stored::kBytes == sizeof(float) ? 4 : 2;  // in columns
    return Stored::kDType != DType::kF16 && head_dim_ % kTurnedDims == 0 && tiles_.count() == 1 &&
           columns_ + kCost <= tiles_.vecs() * kLanes;
  }

  void load_column(const ConstTensor& query, std::int64_t head, float* to, std::size_t width) {
    const std::byte* from = query.at(head);
    float* row = scratch_.row();
    if (query.stride_bytes[1] == dtype_bytes(query.dtype)) {
      query.dtype == DType::kF32 ? widen<StoredF32>(from, head_dim_, row) : widen<Stored>(from, head_dim_, row);
    } else {
      for (std::size_t i = 0; i < head_dim_; ++i)
        row[i] = load_element(from + static_cast<std::int64_t>(i) * query.stride_bytes[1], query.dtype);
    }
    for (std::size_t i = 0; i < head_dim_; ++i) to[i * width] = row[i];
  }

  // A lane per column: keys are widened and their numbers broadcast. All keys' first dims, then the next dims; while
  // some keys are multiplied the next ones are widened.
  void multiply_widened(std::span<const std::byte* const> keys, Fetch& fetch) {
    float* now = scratch_.keys();
    float* next = now + kKeyRows * kDimBlock;
    widen_keys(keys, {0, 0}, now);
    for (Step step{0, 0}; step.dim < head_dim_; std::swap(now, next)) {
      Step following{step.first + kKeyRows, step.dim};
      if (following.first >= keys.size()) following = {0, step.dim + kDimBlock};
      const bool beside = is_whole(step, keys.size()) && is_whole(following, keys.size());
      for (std::size_t tile = 0; tile < tiles_.count(); ++tile) {
        NextKeys to_widen;
        if (beside && tile == 0) to_widen = {keys.data() + following.first, following.dim * Stored::kBytes, next};
        multiply_tile(tile, step, std::min<std::size_t>(kKeyRows, keys.size() - step.first), now, to_widen, fetch);
      }
      if (!beside && following.dim < head_dim_) widen_keys(keys, following, next);
      step = following;
    }
  }

  std::size_t dims_from(std::size_t dim) const { return std::min<std::size_t>(kDimBlock, head_dim_ - dim); }
  bool is_whole(const Step& step, std::size_t keys) const {
    return step.first + kKeyRows <= keys && step.dim + kDimBlock <= head_dim_;
  }

  void widen_keys(std::span<const std::byte* const> keys, const Step& step, float* to) {
    const std::size_t end = std::min<std::size_t>(step.first + kKeyRows, keys.size());
    for (std::size_t j = step.first; j < end; ++j, to += kDimBlock)
      widen<Stored>(keys[j] + step.dim * Stored::kBytes, dims_from(step.dim), to);
  }

  void multiply_tile(std::size_t tile, const Step& step, std::size_t rows, const float* keys, const NextKeys& next,
                     Fetch& fetch) {
    const std::size_t vec = tiles_.first_vec(tile);
    switch (tiles_.first_vec(tile + 1) - vec) {
      case 1:
        return multiply_tile<1>(vec, step, rows, keys, next, fetch);
      case 2:
        return multiply_tile<2>(vec, step, rows, keys, next, fetch);
      default:
        return multiply_tile<3>(vec, step, rows, keys, next, fetch);
    }
  }

  template <std::size_t kVecs>
  void multiply_tile(std::size_t vec, const Step& step, std::size_t rows, const float* keys, NextKeys next,
                     Fetch& fetch) {
    const float* queries = scratch_.queries() + vec * kLanes * head_dim_ + step.dim * kVecs * kLanes;
    float* logits = scratch_.logits() + step.first * logits_stride_ + vec * kLanes;
    const DimBlock dims{dims_from(step.dim), step.dim == 0, step.dim + kDimBlock >= head_dim_};
    // Rows past the last key are computed from what was left there, and never looked at.
    for (std::size_t r = 0; r < rows; r += kTileKeys<kVecs>) {
      logits_tile<Stored, kVecs>(queries, keys + r * kDimBlock, dims, scale_, logits + r * logits_stride_,
                                 logits_stride_, next, fetch);
      if (next.keys != nullptr)
        next = {next.keys + kTileKeys<kVecs>, next.offset_bytes, next.to + kTileKeys<kVecs> * kDimBlock};
    }
  }

  // A lane per key: keys are turned, and the queries' numbers broadcast. All dims of some keys, then the next keys.
  void multiply_turned(std::span<const std::byte* const> keys, Fetch& fetch) {
    std::array<const std::byte*, kSplitEntries + kLaneKeys> padded;  // past the last key, the last again
    std::copy(keys.begin(), keys.end(), padded.begin());
    std::fill_n(padded.begin() + static_cast<std::ptrdiff_t>(keys.size()), kLaneKeys, keys.back());
    for (std::size_t first = 0; first < keys.size(); first += kLaneKeys) {
      for (std::size_t dim = 0; dim < head_dim_; dim += kTurnedBlock) {
        const DimBlock block{std::min(kTurnedBlock, head_dim_ - dim), dim == 0, dim + kTurnedBlock >= head_dim_};
        turn<Stored>(padded.data() + first, dim * Stored::kBytes, block.dims, scratch_.keys());
        multiply_lanes(block, dim, fetch);
      }
      turn_back(scratch_.logits() + first * logits_stride_);
    }
  }

  std::size_t column_groups() const { return (columns_ + kMostTileHeads - 1) / kMostTileHeads; }

  void multiply_lanes(const DimBlock& block, std::size_t dim, Fetch& fetch) {
    const std::size_t width = tiles_.vecs() * kLanes;
    for (std::size_t group = 0; group < column_groups(); ++group) {
      const std::size_t column = group * columns_ / column_groups();
      with_heads((group + 1) * columns_ / column_groups() - column, [&](auto count) HWY_ATTR {
        key_lanes_tile<Stored, decltype(count)::value>(scratch_.queries() + dim * width + column, width,
                                                       scratch_.keys(), block, scale_,
                                                       turned_logits() + column * kLaneKeys, fetch);
      });
    }
  }

  // [column][key] -> [key][column]
  void turn_back(float* logits) const {
    for (std::size_t column = 0; column < columns_; column += kLanes) {
      std::array<const std::byte*, kLanes> rows;
      for (std::size_t i = 0; i < kLanes; ++i) {
        rows[i] = reinterpret_cast<const std::byte*>(turned_logits() + std::min(column + i, columns_ - 1) * kLaneKeys);
      }
      for (std::size_t key = 0; key < kLaneKeys; key += 4)
        turn_four(rows.data(), key * sizeof(float), logits + key * logits_stride_ + column, logits_stride_);
    }
  }

  static constexpr std::size_t kWordDims = sizeof(float) / Stored::kBytes;
  static constexpr std::size_t kTurnedBlock = kTurnedWords * kWordDims;

  float* turned_logits() const { return scratch_.strip(); }  // [columns][kLaneKeys]

  const BlockScratch& scratch_;
  const std::size_t heads_;
  const std::size_t head_dim_;
  const std::size_t logits_stride_;
  const float scale_;
  const std::size_t columns_;
  const ColumnTiles tiles_;
  const bool lanes_are_keys_;
};

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
