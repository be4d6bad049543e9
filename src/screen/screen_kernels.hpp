// Approximate scores, fast: products of bf16 keys and queries, two dims an instruction, and how large each key is.
// Their distance from the canonical scores is bounded by bound.hpp; they are never handed out.
#pragma once

#include <cstdint>
#include <span>

#include "score/score_kernels.hpp"
#include "screen/bound.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim {

inline constexpr std::int64_t kScreenRows = 8;   // heads of queries that a tile holds
inline constexpr std::int64_t kScreenBatch = 4;  // panels that all rows visit before the next are read

// Two neighbouring dims stand in one word as bf16, the even one in its lower half; an odd last dim has a zero beside
// it.
constexpr std::int64_t screen_words(std::int64_t dim) { return (dim + 1) / 2; }

struct ScreenBlock {
  const Geometry* geometry = nullptr;
  std::int64_t count = 0;                  // queries
  const std::uint32_t* queries = nullptr;  // as pack_screen_queries makes them
  const float* head_weights = nullptr;     // [count][index_heads], or null
  const PooledKeys* pooled = nullptr;      // what the block's furthest query sees
  std::int64_t first_panel = 0;            // the panels to score
  std::int64_t panels = 0;
  std::byte* edge = nullptr;      // [score_edge_bytes], 64-byte aligned
  std::uint32_t* keys = nullptr;  // room for [kScreenBatch][screen_words][16], 64-byte aligned
  // Every lane of the panels is written, those that hold no group of the view too.
  float* scores = nullptr;  // [count][16 * panels]
  std::int64_t stride = 0;  // floats from one query's scores to the next's
  float* norms = nullptr;   // [16 * panels]: at least the norm of the key that was multiplied
  float* errors = nullptr;  // [16 * panels]: at least the norm of what rounding the key to bf16 took off
};

// One query's approximate scores, to be held against a threshold.
struct ScreenReach {
  std::span<const float> scores;
  const float* norms = nullptr;
  const float* errors = nullptr;
  ScreenBound bound{};
  float threshold = 0.0f;
};

struct ScreenKernels {
  const char* name;
  bool fast;  // whether the machine multiplies bf16 faster than f32

  void (*score)(const ScreenBlock& block);
  // Writes the groups whose score and bound together reach the threshold, ascending, if there is room; gives how many
  // there are, or one more than there is room for.
  std::int64_t (*reach)(const ScreenReach& task, std::span<std::int32_t> groups);
};

// The definition for the reference and where the machine has no instruction for bf16.
const ScreenKernels& screen_kernels(Kernels kernels);
const ScreenKernels& screen_portable();
// Null where this machine or build has no such instruction.
const ScreenKernels* screen_native();

// Queries [Q, index_heads, index_dim] rounded to bf16: rows in tiles of kScreenRows, the last one narrower; within a
// tile [word][row]. Gives [Q * index_heads * screen_words].
void pack_screen_queries(const ConstTensor& queries, std::uint32_t* packed);

// norms[i] of n = the sum of squares as computed: not less than the root of the true sum (docs/decisions, Norms).
inline constexpr float kNormGrowth = 1.0f + 0x1p-10f;
inline constexpr float kNormFlush = 0x1p-112f;
inline constexpr float kNormRound = 1.0f + 0x1p-20f;

}  // namespace seriatim
