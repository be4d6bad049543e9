// Attention of a block: neighbouring queries over one kv head, one chunk of their merged rows at a time. Once per
// instruction set.
//
// The keys of a chunk times all query heads of the block give logits [entry][column], a column being a head of a query.
// Each query takes its own entries' logits, in row order, into its open split; a full split is weighted, summed and
// folded. With one query a chunk is a split.
#if defined(SERIATIM_ATTEND_BLOCK_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef SERIATIM_ATTEND_BLOCK_INL_HPP_
#undef SERIATIM_ATTEND_BLOCK_INL_HPP_
#else
#define SERIATIM_ATTEND_BLOCK_INL_HPP_
#endif

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <hwy/highway.h>

#include "attend/attend_kernels.hpp"
#include "attend/block_scratch.hpp"
#include "attend/fetch.hpp"
#include "attend/key_lanes-inl.hpp"
#include "attend/softmax-inl.hpp"
#include "attend/tiles-inl.hpp"
#include "attend/write-inl.hpp"
#include "seriatim/gather.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// A chunk whose entries have been found in the cache.
struct Located {
  Chunk chunk;
  std::array<const std::byte*, kSplitEntries> keys;
  std::array<const std::byte*, kSplitEntries> values;
};

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
class Block {
 public:
  explicit Block(const AttendBlock& block)
      : block_(block),
        geometry_(*block.layer->geometry),
        scratch_(geometry_, static_cast<std::int64_t>(block.queries.size()), block.scratch),
        heads_(static_cast<std::size_t>(geometry_.heads_per_kv())),
        head_dim_(static_cast<std::size_t>(geometry_.head_dim())),
        value_dim_(static_cast<std::size_t>(geometry_.value_dim())),
        head_stride_(static_cast<std::size_t>(scratch_.heads_padded())),
        dim_stride_(static_cast<std::size_t>(scratch_.dims_padded())),
        logits_stride_(static_cast<std::size_t>(scratch_.logits_stride())),
        tiles_(block.queries.size() * heads_),
        walk_(*block.layer, block.kv_head) {
    for (std::size_t j = 0; j < strip_rows_.size(); ++j) strip_rows_[j] = reinterpret_cast<const std::byte*>(scratch_.strip() + j * 2 * kLanes);
  }

  void attend() {
    std::array<std::span<const std::int32_t>, kMostBlockQueries> rows;
    for (std::size_t q = 0; q < block_.queries.size(); ++q) {
      rows[q] = block_.queries[q].row;
      states_[q].total = scratch_.total(q);
      begin(states_[q]);
    }
    reduce_rows({rows.data(), block_.queries.size()});
    for (std::size_t q = 0; q < block_.queries.size(); ++q) write(block_.queries[q], states_[q]);
  }

  void reduce(std::int64_t first, std::int64_t count, float* partials) {
    partials_ = partials;
    const auto row = block_.queries[0].row.subspan(static_cast<std::size_t>(first * kSplitEntries));
    const std::span<const std::int32_t> part = row.first(std::min(row.size(), static_cast<std::size_t>(count * kSplitEntries)));
    reduce_rows({&part, 1});
  }

  void fold(std::int64_t first, std::int64_t count, const float* partials, float* total) {
    State& state = states_[0];
    state.total = scratch_.partial(total);
    if (first == 0) begin(state);
    state.any = first > 0 || !block_.sinks.empty();
    for (std::int64_t s = 0; s < count; ++s) {
      fold_partial(scratch_.partial(const_cast<float*>(partials) + s * scratch_.partial_floats()), state);
    }
    const auto splits = (static_cast<std::int64_t>(block_.queries[0].row.size()) + kSplitEntries - 1) / kSplitEntries;
    if (first + count == splits) write(block_.queries[0], state);
  }

 private:
  // What one query has reduced, and its open split.
  struct State {
    Partial total;
    bool any = false;         // false: nothing reduced yet
    std::size_t entries = 0;  // of the open split
    std::array<const std::byte*, kSplitEntries> values;
  };

  // Nothing reduced yet, but for a sink.
  void begin(State& state) {
    std::fill_n(state.total.bad, head_stride_, 0.0f);
    state.any = !block_.sinks.empty();
    if (!state.any) return;
    std::fill_n(state.total.sums, heads_ * dim_stride_, 0.0f);
    std::fill_n(state.total.max, head_stride_, 0.0f);
    std::copy_n(block_.sinks.data() + static_cast<std::size_t>(block_.kv_head) * heads_, heads_, state.total.max);
    std::fill_n(state.total.den, head_stride_, 1.0f);
  }

  void open_partial(State& state) {
    state.total = scratch_.partial(partials_);
    partials_ += scratch_.partial_floats();
    std::fill_n(state.total.bad, head_stride_, 0.0f);
    state.any = false;
  }

  void reduce_rows(std::span<const std::span<const std::int32_t>> rows) {
    const std::size_t queries = rows.size();
    RowUnion merged(rows);
    Located located[2];
    Located* now = &located[0];
    Located* next = &located[1];
    const std::size_t steps = kSplit * (queries * head_tiles() * ((value_dim_ + kPair - 1) / kPair) + kKeyFetchSteps * (head_dim_ / kDimBlock));
    locate(merged, *now);
    Fetch(key_rows(*now), {}, 1).rest();
    load_queries();
    for (; now->chunk.entries > 0; std::swap(now, next)) {
      locate(merged, *next);
      fetch_ = Fetch(value_rows(*now), key_rows(*next), steps);
      multiply_keys(*now);
      for (std::size_t q = 0; q < queries; ++q) take(q, *now);
      fetch_.rest();
    }
    for (std::size_t q = 0; q < queries; ++q) {
      if (states_[q].entries > 0) close_split(q);
    }
  }

  void locate(RowUnion& merged, Located& located) {
    merged.next(located.chunk);
    for (std::size_t j = 0; j < located.chunk.entries; ++j) {
      const SlotWalk::Slot slot = walk_.at(located.chunk.positions[j]);
      located.keys[j] = slot.key;
      located.values[j] = slot.value;
    }
    Fetch::open_pages(key_rows(located));
    Fetch::open_pages(value_rows(located));
  }

  std::size_t head_tiles() const { return (heads_ + kMostTileHeads - 1) / kMostTileHeads; }
  Fetch::Rows key_rows(const Located& located) const {
    return {located.keys.data(), located.keys.data() + located.chunk.entries, head_dim_ * Stored::kBytes};
  }
  // None where the values alias the keys.
  Fetch::Rows value_rows(const Located& located) const {
    if (geometry_.values_alias_keys()) return {};
    return {located.values.data(), located.values.data() + located.chunk.entries, value_dim_ * Stored::kBytes};
  }

  // Queries -> [tile][dim][column of the tile], zeros in columns that pad the last vector.
  void load_queries() {
    std::fill_n(scratch_.queries(), head_dim_ * tiles_.vecs() * kLanes, 0.0f);
    for (std::size_t tile = 0; tile < tiles_.count(); ++tile) {
      const std::size_t first = tiles_.first_vec(tile) * kLanes;
      const std::size_t end = std::min(tiles_.first_vec(tile + 1) * kLanes, block_.queries.size() * heads_);
      const std::size_t width = (tiles_.first_vec(tile + 1) - tiles_.first_vec(tile)) * kLanes;
      for (std::size_t column = first; column < end; ++column) {
        load_column(column, scratch_.queries() + first * head_dim_ + column - first, width);
      }
    }
  }

  void load_column(std::size_t column, float* to, std::size_t width) {
    const ConstTensor& query = block_.queries[column / heads_].query;
    const std::byte* from = query.at(block_.kv_head * geometry_.heads_per_kv() + static_cast<std::int64_t>(column % heads_));
    float* row = scratch_.row();
    if (query.stride_bytes[1] == static_cast<std::int64_t>(Stored::kBytes)) {
      widen<Stored>(from, head_dim_, row);
    } else {
      for (std::size_t i = 0; i < head_dim_; ++i) row[i] = load_element(from + static_cast<std::int64_t>(i) * query.stride_bytes[1], Stored::kDType);
    }
    for (std::size_t i = 0; i < head_dim_; ++i) to[i * width] = row[i];
  }

  // Keys of the chunk from `first` and their dims from `dim`.
  struct KeyStep {
    std::size_t first = 0;
    std::size_t dim = 0;
  };

  // Whether a lane per key leaves fewer lanes idle than a lane per column, by more than it costs to turn the keys.
  bool lanes_are_keys() const {
    if (Stored::kDType == DType::kF16 || head_dim_ % kTurnedDims != 0 || tiles_.count() > 1) return false;
    const std::size_t columns = block_.queries.size() * heads_;
    return columns + kTurningCost <= tiles_.vecs() * kLanes;
  }

  // The same with a lane per key, a block of dims of kLaneKeys keys after the other.
  void multiply_turned_keys(const Located& located) {
    const std::size_t entries = located.chunk.entries;
    std::array<const std::byte*, kSplitEntries + kLaneKeys> keys;  // past the last key, the last again
    std::copy_n(located.keys.begin(), entries, keys.begin());
    std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>(entries), kLaneKeys, located.keys[entries - 1]);
    for (std::size_t first = 0; first < entries; first += kLaneKeys) {
      for (std::size_t dim = 0; dim < head_dim_; dim += kTurnedBlock) {
        turn<Stored>(keys.data() + first, dim * Stored::kBytes, turned_dims_from(dim), scratch_.keys());
        multiply_turned({first, dim});
      }
    }
  }

  static constexpr std::size_t kTurnedBlock = kTurnedWords * sizeof(float) / Stored::kBytes;  // in dims
  std::size_t turned_dims_from(std::size_t dim) const { return std::min(kTurnedBlock, head_dim_ - dim); }

  void multiply_turned(const KeyStep& step) {
    const std::size_t columns = block_.queries.size() * heads_;
    const std::size_t width = tiles_.vecs() * kLanes;
    const std::size_t tiles = (columns + kMostTileHeads - 1) / kMostTileHeads;
    const DimBlock dims{turned_dims_from(step.dim), step.dim == 0, step.dim + kTurnedBlock >= head_dim_};
    float* logits = scratch_.strip();  // [columns][kLaneKeys]
    for (std::size_t t = 0; t < tiles; ++t) {
      const std::size_t column = t * columns / tiles;
      with_heads((t + 1) * columns / tiles - column, [&](auto count) HWY_ATTR {
        key_lanes_tile<Stored, decltype(count)::value>(scratch_.queries() + step.dim * width + column, width, scratch_.keys(), dims, geometry_.softmax_scale(),
                                                       logits + column * kLaneKeys, fetch_);
      });
    }
    if (dims.last) turn_back(logits, columns, scratch_.logits() + step.first * logits_stride_);
  }

  // [column][key] -> [key][column]
  void turn_back(const float* tile, std::size_t columns, float* logits) {
    for (std::size_t column = 0; column < columns; column += kLanes) {
      std::array<const std::byte*, kLanes> rows;
      for (std::size_t i = 0; i < kLanes; ++i) rows[i] = reinterpret_cast<const std::byte*>(tile + std::min(column + i, columns - 1) * kLaneKeys);
      for (std::size_t key = 0; key < kLaneKeys; key += 4) turn_four(rows.data(), key * sizeof(float), logits + key * logits_stride_ + column, logits_stride_);
    }
  }

  // The logits of every entry of the chunk and every column, one block of dims after the other. While some keys are
  // multiplied the next ones are widened.
  void multiply_keys(const Located& located) {
    if (lanes_are_keys()) return multiply_turned_keys(located);
    const std::size_t entries = located.chunk.entries;
    float* now = scratch_.keys();
    float* next = now + kKeyRows * kDimBlock;
    widen_keys(located, {0, 0}, now);
    for (KeyStep step{0, 0}; step.dim < head_dim_; std::swap(now, next)) {
      KeyStep following = {step.first + kKeyRows, step.dim};
      if (following.first >= entries) following = {0, step.dim + kDimBlock};
      const bool beside = is_whole(step, entries) && is_whole(following, entries);
      for (std::size_t tile = 0; tile < tiles_.count(); ++tile) {
        NextKeys keys;
        if (beside && tile == 0) keys = {located.keys.data() + following.first, following.dim * Stored::kBytes, next};
        multiply_tile(tile, step, std::min<std::size_t>(kKeyRows, entries - step.first), now, keys);
      }
      if (!beside && following.dim < head_dim_) widen_keys(located, following, next);
      step = following;
    }
  }

  bool is_whole(const KeyStep& step, std::size_t entries) const { return step.first + kKeyRows <= entries && step.dim + kDimBlock <= head_dim_; }

  void widen_keys(const Located& located, const KeyStep& step, float* to) {
    const std::size_t end = std::min<std::size_t>(step.first + kKeyRows, located.chunk.entries);
    for (std::size_t j = step.first; j < end; ++j, to += kDimBlock) {
      widen<Stored>(located.keys[j] + step.dim * Stored::kBytes, dims_from(step.dim), to);
    }
  }

  std::size_t dims_from(std::size_t dim) const { return std::min<std::size_t>(kDimBlock, head_dim_ - dim); }

  void multiply_tile(std::size_t tile, const KeyStep& step, std::size_t rows, const float* keys, const NextKeys& next) {
    const std::size_t vec = tiles_.first_vec(tile);
    switch (tiles_.first_vec(tile + 1) - vec) {
      case 1: return multiply_tile<1>(vec, step, rows, keys, next);
      case 2: return multiply_tile<2>(vec, step, rows, keys, next);
      default: return multiply_tile<3>(vec, step, rows, keys, next);
    }
  }

  template <std::size_t kVecs>
  void multiply_tile(std::size_t vec, const KeyStep& step, std::size_t rows, const float* keys, NextKeys next) {
    const float* queries = scratch_.queries() + vec * kLanes * head_dim_ + step.dim * kVecs * kLanes;
    float* logits = scratch_.logits() + step.first * logits_stride_ + vec * kLanes;
    const DimBlock dims{dims_from(step.dim), step.dim == 0, step.dim + kDimBlock >= head_dim_};
    // Rows past the last key are computed from what was left there, and never looked at.
    for (std::size_t r = 0; r < rows; r += kTileKeys<kVecs>) {
      logits_tile<Stored, kVecs>(queries, keys + r * kDimBlock, dims, geometry_.softmax_scale(), logits + r * logits_stride_, logits_stride_, next, fetch_);
      if (next.keys != nullptr) next = {next.keys + kTileKeys<kVecs>, next.offset_bytes, next.to + kTileKeys<kVecs> * kDimBlock};
    }
  }

  // Moves the chunk's entries of one query into its open split, which is reduced whenever it is full.
  void take(std::size_t q, const Located& located) {
    State& state = states_[q];
    const std::size_t count = located.chunk.counts[q];
    const std::uint8_t* places = located.chunk.places[q].data();
    for (std::size_t t = 0; t < count;) {
      if (partials_ != nullptr && state.entries == 0) open_partial(state);
      const std::size_t part = std::min(count - t, kSplit - state.entries);
      take_logits({scratch_.logits() + q * heads_, logits_stride_, places + t, part}, heads_, open_split(q));
      for (std::size_t i = 0; i < part; ++i) state.values[state.entries + i] = located.values[places[t + i]];
      state.entries += part;
      t += part;
      if (state.entries == kSplit) close_split(q);
    }
  }

  OpenSplit open_split(std::size_t q) const {
    return {scratch_.weights(q), head_stride_, scratch_.split_max(q), states_[q].total.bad, states_[q].entries};
  }

  // Weighs and sums the open split, and folds it into what came before.
  void close_split(std::size_t q) {
    State& state = states_[q];
    float* a = state.any ? scratch_.factors() : nullptr;
    float* b = scratch_.factors() + head_stride_;
    weigh(open_split(q), heads_, state.total, a, b);
    const Weighted split{state.values.data(), 0, scratch_.weights(q), head_stride_, state.entries};
    sum_values(split, {state.total.sums, dim_stride_, a, b});
    state.any = true;
    state.entries = 0;
  }

  void sum_values(Weighted split, const FoldInto& fold) {
    for (std::size_t dim = 0; dim < value_dim_; dim += kPair) {
      split.offset_bytes = dim * Stored::kBytes;
      // What does not fill two vectors, or is read more than twice, is widened first.
      const bool whole = dim + kPair <= value_dim_;
      if (whole && (head_tiles() <= 2 || Stored::kBytes == sizeof(float))) {
        sum_dims<Stored>(split, dim, fold);
      } else {
        widen_strip(split, whole ? kPair : value_dim_ - dim);
        sum_dims<StoredF32>({strip_rows_.data(), 0, split.weights, split.stride, split.entries}, dim, fold);
      }
    }
  }

  // Two vectors of dims from `dim`, all heads in tiles as even as can be; meanwhile the next keys are fetched.
  template <typename From>
  void sum_dims(const Weighted& split, std::size_t dim, const FoldInto& fold) {
    for (std::size_t tile = 0; tile < head_tiles(); ++tile) {
      const std::size_t head = tile * heads_ / head_tiles();
      const std::size_t end = (tile + 1) * heads_ / head_tiles();
      Weighted in = split;
      in.weights += head;
      const FoldInto into{fold.sums + head * fold.stride + dim, fold.stride, fold.a == nullptr ? nullptr : fold.a + head, fold.b + head};
      with_heads(end - head, [&](auto heads) HWY_ATTR { values_tile<From, decltype(heads)::value>(in, into, fetch_); });
    }
  }

  // `dims` dims of every entry's value -> the strip, padded with zeros to two vectors; in the order of load_pair where
  // they fill them.
  void widen_strip(const Weighted& split, std::size_t dims) {
    constexpr FloatTag d;
    float* to = scratch_.strip();
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

  // Folds a split that was reduced elsewhere.
  void fold_partial(const Partial& split, State& state) {
    constexpr FloatTag d;
    float* a = scratch_.factors();
    float* b = scratch_.factors() + head_stride_;
    for (std::size_t h = 0; h < heads_; h += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, state.total.bad + h), hn::LoadU(d, split.bad + h)), d, state.total.bad + h);
      if (state.any) fold_vec(hn::LoadU(d, split.max + h), hn::LoadU(d, split.den + h), state.total.max + h, state.total.den + h, a + h, b + h);
    }
    if (!state.any) {
      std::copy_n(split.sums, heads_ * dim_stride_, state.total.sums);
      std::copy_n(split.max, head_stride_, state.total.max);
      std::copy_n(split.den, head_stride_, state.total.den);
      state.any = true;
      return;
    }
    for (std::size_t h = 0; h < heads_; ++h) {
      float* sums = state.total.sums + h * dim_stride_;
      const float* more = split.sums + h * dim_stride_;
      for (std::size_t i = 0; i < value_dim_; i += kLanes) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, sums + i), hn::Set(d, a[h]), hn::Mul(hn::LoadU(d, more + i), hn::Set(d, b[h]))), d, sums + i);
      }
    }
  }

  void write(BlockQuery& query, const State& state) {
    constexpr FloatTag d;
    float* lse = scratch_.factors();
    for (std::size_t h = 0; h < heads_; h += kLanes) {
      const auto max = hn::LoadU(d, state.total.max + h);
      hn::StoreU(hn::Add(max, log_from_1(hn::LoadU(d, state.total.den + h))), d, lse + h);
    }
    query.overflow = -1;
    for (std::size_t h = 0; h < heads_; ++h) {
      const std::int64_t head = block_.kv_head * geometry_.heads_per_kv() + static_cast<std::int64_t>(h);
      const HeadResult result = write_head<Stored>(state.total, h, state.any, value_dim_, dim_stride_, query.output, head);
      if (result == HeadResult::kOverflow && query.overflow < 0) query.overflow = head;
      if (query.lse.empty()) continue;
      query.lse[static_cast<std::size_t>(head)] = result == HeadResult::kOverflow ? std::numeric_limits<float>::quiet_NaN()
                                                  : result == HeadResult::kEmpty  ? -std::numeric_limits<float>::infinity()
                                                                                  : lse[h];
    }
  }

  static constexpr std::size_t kSplit = kSplitEntries;
  static constexpr std::size_t kPair = 2 * kLanes;
  static constexpr std::size_t kTurningCost = Stored::kBytes == sizeof(float) ? 4 : 2;  // in columns

  const AttendBlock& block_;
  const Geometry& geometry_;
  const BlockScratch scratch_;
  const std::size_t heads_;
  const std::size_t head_dim_;
  const std::size_t value_dim_;
  const std::size_t head_stride_;
  const std::size_t dim_stride_;
  const std::size_t logits_stride_;
  const ColumnTiles tiles_;
  SlotWalk walk_;
  Fetch fetch_;  // of the next chunk
  float* partials_ = nullptr;  // where the next split's partial goes; null: splits are folded as they close
  std::array<const std::byte*, kSplitEntries> strip_rows_;
  std::array<State, kMostBlockQueries> states_;
};

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
