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

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "attend/attend_kernels.hpp"
#include "attend/block_scratch.hpp"
#include "attend/fetch.hpp"
#include "attend/key_products-inl.hpp"
#include "attend/softmax-inl.hpp"
#include "attend/tiles-inl.hpp"
#include "attend/value_sums-inl.hpp"
#include "attend/write-inl.hpp"
#include "seriatim/layer_view.hpp"

HWY_BEFORE_NAMESPACE();
namespace seriatim::HWY_NAMESPACE {

// A chunk whose entries have been found in the cache.
struct Located {
  Chunk chunk;
  std::array<const std::byte*, kSplitEntries> keys;
  std::array<const std::byte*, kSplitEntries> values;
};

template <typename Stored>
class Block {
 public:
  explicit Block(const AttendBlock& block)
      : block_(block),
        geometry_(*block.layer->geometry),
        scratch_(geometry_, static_cast<std::int64_t>(block.queries.size()), block.scratch),
        first_head_(block.kv_head * geometry_.heads_per_kv() + block.first_head),
        heads_(static_cast<std::size_t>(block.heads == 0 ? geometry_.heads_per_kv() : block.heads)),
        head_dim_(static_cast<std::size_t>(geometry_.head_dim())),
        value_dim_(static_cast<std::size_t>(geometry_.value_dim())),
        head_stride_(static_cast<std::size_t>(scratch_.heads_padded())),
        dim_stride_(static_cast<std::size_t>(scratch_.dims_padded())),
        logits_stride_(static_cast<std::size_t>(scratch_.logits_stride())),
        products_(geometry_, scratch_, block.queries.size(), heads_),
        sums_(geometry_, scratch_, heads_),
        walk_(*block.layer, block.kv_head) {}

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
    states_[0].taken = static_cast<std::size_t>(first * kSplitEntries);
    const auto row = block_.queries[0].row.subspan(static_cast<std::size_t>(first * kSplitEntries));
    const std::span<const std::int32_t> part =
        row.first(std::min(row.size(), static_cast<std::size_t>(count * kSplitEntries)));
    reduce_rows({&part, 1});
  }

  void fold(std::int64_t first, std::int64_t count, const float* partials, float* total) {
    State& state = states_[0];
    state.total = own_heads(total);
    if (first == 0) begin(state);
    state.any = first > 0 || !block_.sinks.empty();
    for (std::int64_t s = 0; s < count; ++s) {
      fold_partial(own_heads(const_cast<float*>(partials) + s * scratch_.partial_floats()), state);
    }
    const auto splits = (static_cast<std::int64_t>(block_.queries[0].row.size()) + kSplitEntries - 1) / kSplitEntries;
    if (first + count == splits) write(block_.queries[0], state);
  }

  // In one walk, so that a split's keys are fetched while the one before is summed.
  void split_partials(std::int64_t first, std::int64_t count, float* spare, float* partials) {
    laid_out_ = partials;
    reduce(first, count, spare);
  }

  void fold_partials(const float* partials, std::int64_t count, float* spare) {
    State& state = states_[0];
    state.total = own_heads(spare);
    const Partial split = own_heads(spare + scratch_.partial_floats());
    begin(state);
    std::fill_n(split.sums, heads_ * dim_stride_, 0.0f);  // what pads a head's dims is read too
    for (std::int64_t s = 0; s < count; ++s, partials += attend_partial_floats(geometry_)) {
      const PartialParts<const float> parts(geometry_, partials);
      const auto first = static_cast<std::size_t>(first_head_);
      if (parts.den[first] == 0.0f) continue;  // past the row's end
      for (std::size_t h = 0; h < padded_heads(); ++h) {
        const std::size_t head = first + std::min(h, heads_ - 1);
        split.max[h] = parts.max[head];
        split.den[h] = parts.den[head];
        split.bad[h] = parts.max[head] == parts.max[head] ? 0.0f : parts.max[head];
      }
      for (std::size_t h = 0; h < heads_; ++h)
        std::copy_n(parts.sums + (first + h) * value_dim_, value_dim_, split.sums + h * dim_stride_);
      fold_partial(split, state);
    }
    if (block_.state == nullptr) return write(block_.queries[0], state);
    if (state.any) return put_partial(state.total, block_.state);
    const PartialParts<float> parts(geometry_, block_.state);
    std::fill_n(parts.max + first_head_, heads_, -std::numeric_limits<float>::infinity());
    std::fill_n(parts.den + first_head_, heads_, 0.0f);
    std::fill_n(parts.sums + static_cast<std::size_t>(first_head_) * value_dim_, heads_ * value_dim_, 0.0f);
  }

 private:
  // What one query has reduced, and its open split.
  struct State {
    Partial total;
    bool any = false;         // false: nothing reduced yet
    std::size_t entries = 0;  // of the open split
    std::size_t taken = 0;    // of the row
    std::array<const std::byte*, kSplitEntries> values;
  };

  // Where the block's heads lie in a partial of all.
  Partial own_heads(float* memory) const {
    const Partial all = scratch_.partial(memory);
    return {all.sums + block_.first_head * scratch_.dims_padded(), all.max + block_.first_head,
            all.den + block_.first_head, all.bad + block_.first_head};
  }

  // Nothing reduced yet, but for a sink.
  void begin(State& state) {
    std::fill_n(state.total.bad, padded_heads(), 0.0f);
    state.any = !block_.sinks.empty();
    if (!state.any) return;
    std::fill_n(state.total.sums, heads_ * dim_stride_, 0.0f);
    std::fill_n(state.total.max, padded_heads(), 0.0f);
    std::copy_n(block_.sinks.data() + first_head_, heads_, state.total.max);
    std::fill_n(state.total.den, padded_heads(), 1.0f);
  }

  void open_partial(State& state) {
    state.total = scratch_.partial(partials_);
    if (laid_out_ == nullptr) partials_ += scratch_.partial_floats();
    std::fill_n(state.total.bad, head_stride_, 0.0f);
    state.any = false;
  }

  void reduce_rows(std::span<const std::span<const std::int32_t>> rows) {
    const std::size_t queries = rows.size();
    RowUnion merged(rows);
    Located located[2];
    Located* now = &located[0];
    Located* next = &located[1];
    locate(merged, *now);
    Fetch(key_rows(*now), 0).rest();
    if (queries == 1) Fetch::open_scratch(block_.scratch, static_cast<std::size_t>(scratch_.floats()) * sizeof(float));
    products_.load_queries(block_.queries, first_head_);
    for (; now->chunk.entries > 0; std::swap(now, next)) {
      locate(merged, *next);
      // While a chunk's keys are multiplied its values are fetched, and while values are summed the next chunk's keys.
      fetch_ = Fetch(value_rows(*now), products_.fetch_steps(now->chunk.entries));
      products_.multiply({now->keys.data(), now->chunk.entries}, fetch_);
      fetch_.rest();
      fetch_ = Fetch(key_rows(*next), queries * sums_.fetch_steps(kSplit));
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
      const LayerWalk::Token token = walk_.at(located.chunk.positions[j]);
      located.keys[j] = token.key;
      located.values[j] = token.value;
    }
    Fetch::open_pages(key_rows(located));
    Fetch::open_pages(value_rows(located));
  }

  FetchRows key_rows(const Located& located) const {
    return {located.keys.data(), located.chunk.entries, head_dim_ * Stored::kBytes};
  }
  // None where the values alias the keys.
  FetchRows value_rows(const Located& located) const {
    if (geometry_.values_alias_keys()) return {};
    return {located.values.data(), located.chunk.entries, value_dim_ * Stored::kBytes};
  }

  // Moves the chunk's entries of one query into its open split, which is reduced whenever it is full.
  void take(std::size_t q, const Located& located) {
    State& state = states_[q];
    const std::size_t count = located.chunk.counts[q];
    const std::uint8_t* places = located.chunk.places[q].data();
    for (std::size_t t = 0; t < count;) {
      if (partials_ != nullptr && state.entries == 0) open_partial(state);
      const std::size_t part = std::min(count - t, kSplit - state.entries);
      const float* biases = block_.queries[q].biases;
      if (biases != nullptr) biases += state.taken;
      take_logits({scratch_.logits() + q * heads_, logits_stride_, places + t, part, biases}, heads_, open_split(q));
      for (std::size_t i = 0; i < part; ++i) state.values[state.entries + i] = located.values[places[t + i]];
      state.entries += part;
      state.taken += part;
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
    sums_.sum(split, {state.total.sums, dim_stride_, a, b}, fetch_);
    state.any = true;
    state.entries = 0;
    if (laid_out_ == nullptr) return;
    put_partial(state.total, laid_out_);
    laid_out_ += attend_partial_floats(geometry_);
  }

  // The block's heads of a partial as attend.hpp lays it out.
  void put_partial(const Partial& own, float* partial) const {
    const PartialParts<float> parts(geometry_, partial);
    for (std::size_t h = 0; h < heads_; ++h) {
      const auto head = static_cast<std::size_t>(first_head_) + h;
      float* sums = parts.sums + head * value_dim_;
      if (own.bad[h] != 0.0f) {  // NaN is not 0
        constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
        parts.max[head] = parts.den[head] = kNaN;
        std::fill_n(sums, value_dim_, kNaN);
        continue;
      }
      parts.max[head] = own.max[h];
      parts.den[head] = own.den[h];
      dims_in_order<Stored>(own.sums + h * dim_stride_, value_dim_, sums);
    }
  }

  // Folds a split that was reduced elsewhere.
  void fold_partial(const Partial& split, State& state) {
    constexpr FloatTag d;
    float* a = scratch_.factors();
    float* b = scratch_.factors() + head_stride_;
    for (std::size_t h = 0; h < heads_; h += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, state.total.bad + h), hn::LoadU(d, split.bad + h)), d, state.total.bad + h);
      if (state.any)
        fold_vec(hn::LoadU(d, split.max + h), hn::LoadU(d, split.den + h), state.total.max + h, state.total.den + h,
                 a + h, b + h);
    }
    if (!state.any) {
      std::copy_n(split.sums, heads_ * dim_stride_, state.total.sums);
      std::copy_n(split.max, padded_heads(), state.total.max);
      std::copy_n(split.den, padded_heads(), state.total.den);
      state.any = true;
      return;
    }
    for (std::size_t h = 0; h < heads_; ++h) {
      float* sums = state.total.sums + h * dim_stride_;
      const float* more = split.sums + h * dim_stride_;
      for (std::size_t i = 0; i < value_dim_; i += kLanes) {
        hn::StoreU(
            hn::MulAdd(hn::LoadU(d, sums + i), hn::Set(d, a[h]), hn::Mul(hn::LoadU(d, more + i), hn::Set(d, b[h]))), d,
            sums + i);
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
      const std::int64_t head = first_head_ + static_cast<std::int64_t>(h);
      const HeadResult result =
          write_head<Stored>(state.total, h, state.any, value_dim_, dim_stride_, query.output, head);
      if (result == HeadResult::kOverflow && query.overflow < 0) query.overflow = head;
      if (query.lse.empty()) continue;
      query.lse[static_cast<std::size_t>(head)] =
          result == HeadResult::kOverflow ? std::numeric_limits<float>::quiet_NaN()
          : result == HeadResult::kEmpty  ? -std::numeric_limits<float>::infinity()
                                          : lse[h];
    }
  }

  std::size_t padded_heads() const {
    return static_cast<std::size_t>(round_up(static_cast<std::int64_t>(heads_), kMostLanes));
  }

  static constexpr std::size_t kSplit = kSplitEntries;

  const AttendBlock& block_;
  const Geometry& geometry_;
  const BlockScratch scratch_;
  const std::int64_t first_head_;  // of all query heads
  const std::size_t heads_;
  const std::size_t head_dim_;
  const std::size_t value_dim_;
  const std::size_t head_stride_;
  const std::size_t dim_stride_;
  const std::size_t logits_stride_;
  KeyProducts<Stored> products_;
  ValueSums<Stored> sums_;
  LayerWalk walk_;
  Fetch fetch_;
  float* partials_ = nullptr;  // where the next split's partial goes; null: splits are folded as they close
  float* laid_out_ = nullptr;  // where it then goes as attend.hpp lays it out; null: it stays
  std::array<State, kMostBlockQueries> states_;
};

}  // namespace seriatim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
