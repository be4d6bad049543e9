// How the vector code lays out its scratch. The widest vector decides every padding, so all instruction sets agree.
#pragma once

#include <cstdint>

#include "attend/row_union.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

inline constexpr std::int64_t kMostLanes = 16;
inline constexpr std::int64_t kKeyRows = 16;    // keys that are multiplied together
inline constexpr std::int64_t kDimBlock = 128;  // dims of a key that are multiplied in one go

constexpr std::int64_t round_up(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit * unit; }

// Softmax of some entries for the heads of one kv head, and what was summed: one piece of kernel_partial_floats.
struct Partial {
  float* sums = nullptr;  // [heads][dims], dims in the kernel's own order
  float* max = nullptr;   // [heads_padded]
  float* den = nullptr;   // [heads_padded]
  float* bad = nullptr;   // [heads_padded]: 0 while every logit was finite, else NaN
};

class BlockScratch {
 public:
  BlockScratch(const Geometry& geometry, std::int64_t queries, float* memory);

  // Strides in floats.
  std::int64_t heads_padded() const { return heads_padded_; }
  std::int64_t dims_padded() const { return dims_padded_; }
  std::int64_t logits_stride() const { return logits_stride_; }

  float* queries() const { return queries_; }  // [head_dim][columns], columns in tiles of registers
  float* keys() const { return keys_; }        // [2][2 * kMostLanes][kDimBlock]: those in use and the next
  float* row() const { return row_; }          // [head_dim]
  float* logits() const { return logits_; }    // [kSplitEntries][logits_stride]
  float* strip() const { return strip_; }      // [kSplitEntries][2 * kMostLanes]: two vectors of values of each entry
  float* factors() const { return factors_; }  // [2][heads_padded]: the fold's a and b

  // Of one query: the open split's logits, later weights, [kSplitEntries][heads_padded]; its maximum so far
  // [heads_padded]; all that came before it.
  float* weights(std::size_t query) const {
    return weights_ + static_cast<std::int64_t>(query) * kSplitEntries * heads_padded_;
  }
  float* split_max(std::size_t query) const { return split_max_ + static_cast<std::int64_t>(query) * heads_padded_; }
  Partial total(std::size_t query) const;

  // The memory of one partial as its parts.
  Partial partial(float* memory) const;
  std::int64_t partial_floats() const { return heads_ * dims_padded_ + 3 * heads_padded_; }

  // What all of the above takes, room to align it included.
  std::int64_t floats() const { return floats_; }

 private:
  std::int64_t heads_;
  std::int64_t heads_padded_;
  std::int64_t dims_padded_;
  std::int64_t logits_stride_;
  float* queries_;
  float* keys_;
  float* row_;
  float* logits_;
  float* strip_;
  float* factors_;
  float* weights_;
  float* split_max_;
  float* totals_;
  std::int64_t floats_;
};

}  // namespace seriatim
