// Scratch of screening: how much of it there is, and what of it a worker has.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.hpp"
#include "screen/bound.hpp"
#include "seriatim/geometry.hpp"

namespace seriatim {

// Entries of one worker's scratch; all 0 where nothing is screened.
struct ScreenShape {
  std::int64_t query_words = 0;    // of a block's queries
  std::int64_t block_queries = 0;  // bounds
  std::int64_t norm_floats = 0;    // norms and errors, each
  std::int64_t key_words = 0;      // panels as words
  std::int64_t query_floats = 0;   // one query, twice
  std::int64_t gathered_bytes = 0;
  std::int64_t listed = 0;  // groups that may be in the set
  std::int64_t kept = 0;    // the budget's

  std::int64_t bytes() const;
};

// Takes   score_stride: floats of one query's scores; block_queries: the most that share a pass
ScreenShape screen_shape(const Geometry& geometry, std::int64_t score_stride, std::int64_t block_queries);

struct ScreenScratch {
  void grow(const ScreenShape& shape);  // throws std::bad_alloc
  bool holds(const ScreenShape& shape) const;
  std::int64_t bytes() const;

  // Of the worker that packs a block, for all who work on it.
  AlignedBuffer<std::uint32_t> queries;
  AlignedBuffer<ScreenBound> bounds;
  AlignedBuffer<float> norms;
  AlignedBuffer<float> errors;
  // Of each worker.
  AlignedBuffer<std::uint32_t> keys;
  AlignedBuffer<float> query;
  AlignedBuffer<std::byte> gathered;
  AlignedBuffer<std::int32_t> listed;
  AlignedBuffer<float> exact;
  AlignedBuffer<std::int32_t> unsure;
  AlignedBuffer<float> unsure_exact;
};

}  // namespace seriatim
