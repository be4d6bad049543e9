// The implementations of attention, one per instruction set. All give the bits of attend_ref.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "seriatim/attend.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim {

// One query of a block. Everything is checked.
struct BlockQuery {
  ConstTensor query;  // [query_heads, head_dim], in kv_dtype or f32
  std::span<const std::int32_t> row;
  Tensor output;                  // [query_heads, value_dim]
  std::span<float> lse;           // [query_heads] or empty
  std::int64_t overflow = -1;     // set to the first head that overflowed
  const float* biases = nullptr;  // [row.size()], each added to its entry's logits; null: none
};

// Neighbouring queries and one kv head, whose query heads are attended, or some of them.
struct AttendBlock {
  const LayerView* layer = nullptr;
  std::int64_t kv_head = 0;
  std::span<BlockQuery> queries;  // 1 .. block_queries(geometry)
  std::span<const float> sinks;   // [query_heads] or empty
  float* scratch = nullptr;       // attend_block_floats(geometry, queries.size())
  float* state = nullptr;         // where fold_partials puts what it folded, as a partial; null: it is finished
  // Of the kv head's query heads those from here on, a multiple of kHeadUnit, and how many; 0: all. Not in the
  // reference.
  std::int64_t first_head = 0;
  std::int64_t heads = 0;
};
inline constexpr std::int64_t kHeadUnit = 16;

struct AttendKernels {
  std::string_view name;  // of what really runs: Highway's name of the instruction set, or "reference"
  void (*attend_block)(const AttendBlock& block);
  // The same for one query in two steps, so that its splits can be reduced at once; see reduces_splits().
  // Each split first .. first + count - 1 is reduced to a partial of its own: partials[count][kernel_partial_floats].
  void (*reduce_splits)(const AttendBlock& block, std::int64_t first, std::int64_t count, float* partials) = nullptr;
  // Folds those partials, in order, into `total` (kernel_partial_floats), which the first split begins, and writes
  // output and lse after the last one. Of the block's heads alone; those of a reduction are all.
  void (*fold_splits)(const AttendBlock& block, std::int64_t first, std::int64_t count, const float* partials,
                      float* total) = nullptr;
  // One query's splits first .. first + count - 1, which its row has, each reduced to a kv head's part of a partial as
  // attend.hpp lays it out; the partials lie one after the other.
  // Takes   spare: kernel_partial_floats
  void (*split_partials)(const AttendBlock& block, std::int64_t first, std::int64_t count, float* spare,
                         float* partials) = nullptr;
  // Folds `count` such partials of one query, which lie one after the other, and writes output and lse, or the state
  // where the block has one. Of the block the layer's geometry, the sinks, the heads and the query's output, lse and
  // overflow are used.
  // Takes   spare: 2 * kernel_partial_floats
  void (*fold_partials)(const AttendBlock& block, const float* partials, std::int64_t count, float* spare) = nullptr;

  // Whether reduce_splits and fold_splits are there.
  bool reduces_splits() const { return reduce_splits != nullptr; }
};

// A partial's parts, in the memory of one.
template <typename Float>
struct PartialParts {
  PartialParts(const Geometry& geometry, Float* partial)
      : max(partial), den(max + geometry.query_heads()), sums(den + geometry.query_heads()) {}
  Float* max;
  Float* den;
  Float* sums;
};

const AttendKernels& attend_kernels(Kernels kernels);
const AttendKernels& attend_reference();

// The most queries of one block: enough that their heads fill the registers.
std::int64_t block_queries(const Geometry& geometry);

// Scratch of the reference, in floats.
std::int64_t attend_ref_floats(const Geometry& geometry);
// Scratch, in floats, sufficient for every implementation.
std::int64_t attend_block_floats(const Geometry& geometry, std::int64_t queries);
// A partial as the vector code lays it out.
std::int64_t kernel_partial_floats(const Geometry& geometry);

}  // namespace seriatim
