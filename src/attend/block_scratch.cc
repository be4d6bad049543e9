#include "attend/block_scratch.hpp"

#include <algorithm>

#include "attend/attend_kernels.hpp"

namespace seriatim {
namespace {

constexpr std::int64_t kAlignFloats = 16;  // 64 bytes

// Hands out aligned pieces of one piece of memory, or, without memory, only counts.
class Pieces {
 public:
  explicit Pieces(float* memory) : memory_(memory) {
    const auto past =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(memory) / sizeof(float) % kAlignFloats);
    if (past != 0) memory_ += kAlignFloats - past;
  }
  float* take(std::int64_t floats) {
    float* piece = memory_ == nullptr ? nullptr : memory_ + taken_;
    taken_ += round_up(floats, kAlignFloats);
    return piece;
  }
  std::int64_t floats() const { return taken_ + kAlignFloats; }

 private:
  float* memory_;
  std::int64_t taken_ = 0;
};

}  // namespace

BlockScratch::BlockScratch(const Geometry& geometry, std::int64_t queries, float* memory)
    : heads_(geometry.heads_per_kv()),
      heads_padded_(round_up(heads_, kMostLanes)),
      dims_padded_(round_up(geometry.value_dim(), 2 * kMostLanes)),
      logits_stride_(round_up(queries * heads_, kMostLanes) + kMostLanes) {
  Pieces pieces(memory);
  queries_ = pieces.take(geometry.head_dim() * round_up(queries * heads_, kMostLanes));
  keys_ = pieces.take(2 * 2 * kMostLanes * kDimBlock);
  row_ = pieces.take(geometry.head_dim());
  logits_ = pieces.take(kSplitEntries * logits_stride_);
  strip_ = pieces.take(kSplitEntries * 2 * kMostLanes);
  factors_ = pieces.take(2 * heads_padded_);
  weights_ = pieces.take(queries * kSplitEntries * heads_padded_);
  split_max_ = pieces.take(queries * heads_padded_);
  totals_ = pieces.take(queries * partial_floats());
  floats_ = pieces.floats();
}

Partial BlockScratch::partial(float* memory) const {
  float* heads = memory + heads_ * dims_padded_;
  return {memory, heads, heads + heads_padded_, heads + 2 * heads_padded_};
}

Partial BlockScratch::total(std::size_t query) const {
  return partial(totals_ + static_cast<std::int64_t>(query) * partial_floats());
}

std::int64_t block_queries(const Geometry& geometry) {
  return std::clamp<std::int64_t>(3 * kMostLanes / geometry.heads_per_kv(), 1,
                                  static_cast<std::int64_t>(kMostBlockQueries));
}

std::int64_t attend_block_floats(const Geometry& geometry, std::int64_t queries) {
  return std::max(BlockScratch(geometry, queries, nullptr).floats(), attend_ref_floats(geometry));
}

std::int64_t kernel_partial_floats(const Geometry& geometry) {
  return BlockScratch(geometry, 1, nullptr).partial_floats();
}

}  // namespace seriatim
