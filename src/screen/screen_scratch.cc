#include "screen/screen_scratch.hpp"

#include <algorithm>

#include "screen/rescore.hpp"
#include "screen/screen_kernels.hpp"

namespace seriatim {
namespace {

template <class Scratch, class Each>
void for_each_buffer(Scratch& scratch, const ScreenShape& shape, Each each) {
  each(scratch.queries, shape.query_words);
  each(scratch.bounds, shape.block_queries);
  each(scratch.norms, shape.norm_floats);
  each(scratch.errors, shape.norm_floats);
  each(scratch.keys, shape.key_words);
  each(scratch.query, shape.query_floats);
  each(scratch.gathered, shape.gathered_bytes);
  each(scratch.listed, shape.listed);
  each(scratch.exact, shape.listed);
  each(scratch.unsure, shape.kept);
  each(scratch.unsure_exact, shape.kept);
}

}  // namespace

std::int64_t ScreenShape::bytes() const {
  return (query_words + 2 * norm_floats + key_words + query_floats + 2 * listed + 2 * kept) * 4 + gathered_bytes +
         block_queries * static_cast<std::int64_t>(sizeof(ScreenBound));
}

ScreenShape screen_shape(const Geometry& geometry, std::int64_t score_stride, std::int64_t block_queries) {
  const std::int64_t words = screen_words(geometry.index_dim());
  ScreenShape shape;
  shape.query_words = block_queries * geometry.index_heads() * words;
  shape.block_queries = block_queries;
  shape.norm_floats = score_stride;
  shape.key_words = kScreenBatch * words * Panels::kLanes;
  shape.query_floats = 2 * geometry.index_heads() * geometry.index_dim();
  shape.gathered_bytes = kGatheredPanels * score_edge_bytes(geometry);
  shape.kept = std::min(geometry.budget_groups(), score_stride);  // a larger budget is not screened
  shape.listed = shape.kept + score_stride / 4;
  return shape;
}

void ScreenScratch::grow(const ScreenShape& shape) {
  for_each_buffer(*this, shape, []<typename T>(AlignedBuffer<T>& buffer, std::int64_t entries) {
    if (buffer.size() < entries) buffer = AlignedBuffer<T>(entries);
  });
}

bool ScreenScratch::holds(const ScreenShape& shape) const {
  bool all = true;
  for_each_buffer(*this, shape, [&](const auto& buffer, std::int64_t entries) { all &= buffer.size() >= entries; });
  return all;
}

std::int64_t ScreenScratch::bytes() const {
  std::int64_t sum = 0;
  for_each_buffer(*this, ScreenShape(), [&](const auto& buffer, std::int64_t) {
    sum += buffer.size() * static_cast<std::int64_t>(sizeof *buffer.data());
  });
  return sum;
}

}  // namespace seriatim
