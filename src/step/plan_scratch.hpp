// Scratch of plan(): how many queries share one pass over the panels, and what that takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.hpp"
#include "screen/screen_scratch.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

// With pooling `unit_max` the scores of so many units of every selection of a block are there at once.
inline constexpr std::int64_t kUnitScores = 256;

// Entries of one worker's scratch.
struct PlanShape {
  std::int64_t block_queries = 1;  // that share a pass
  std::int64_t score_stride = 0;   // from one query's scores to the next's
  std::int64_t score_floats = 0;   // [block_queries][selections][score_stride] or more
  std::int64_t unit_floats = 0;    // scores of units on their way to those of groups
  std::int64_t query_floats = 0;   // [block_queries][index_heads][index_dim] or more
  std::int64_t weight_floats = 0;  // [block_queries][index_heads] or more
  std::int64_t edge_bytes = 0;     // one panel
  std::int64_t planned_ints = 0;   // plan_row_scratch_entries
  ScreenShape screen;              // empty where nothing is screened

  std::int64_t bytes() const {
    return (score_floats + unit_floats + query_floats + weight_floats + planned_ints) * 4 + edge_bytes + screen.bytes();
  }
};

// As many queries as keep the scores and the queries of a block small, one at least: so the scratch grows with the
// visible tokens once they alone pass that, and never with the number of queries. Fewer visible tokens need no more of
// anything. The sizes of one worker fit 64 bits.
// Takes   max_visible_tokens admitted by check_run; screens: whether queries may be screened
PlanShape plan_shape(const Geometry& geometry, std::int64_t max_visible_tokens, bool screens = false);

// What screening did, of one worker.
struct ScreenDone {
  std::int64_t groups = 0;     // by approximate scores alone, but for the rescored
  std::int64_t rescored = 0;   // groups
  std::int64_t fallbacks = 0;  // queries screened in vain, or that no bound holds for
  std::int64_t key_bytes = 0;  // pooled keys read
};

struct PlanScratch {
  // Afterwards it holds that, and what it held. Throws std::bad_alloc.
  void grow(const PlanShape& shape);
  bool holds(const PlanShape& shape) const;
  std::int64_t bytes() const;

  AlignedBuffer<float> scores;
  AlignedBuffer<float> units;
  AlignedBuffer<float> queries;
  AlignedBuffer<float> head_weights;
  AlignedBuffer<std::byte> edge;
  AlignedBuffer<std::int32_t> planned;
  ScreenScratch screen;
  float largest = 0.0f;  // magnitude of the keys that this worker looked at
  ScreenDone done;       // in this call
  // Automatic screening leaves out so many blocks after one that was in vain, twice as many after the next.
  std::int64_t blocks_to_leave = 0;
  std::int64_t blocks_left_last = 0;
};

}  // namespace seriatim
