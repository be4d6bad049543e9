#include "scorer.hpp"

#include <algorithm>
#include <array>

#include "score/score_kernels.hpp"
#include "step/for_units.hpp"
#include "tensors.hpp"
#include "widener.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{128} << 10;  // of queries that share a pass over a tile

std::int64_t block_queries(const Geometry& geometry) {
  return std::clamp<std::int64_t>(kBlockBytes / 4 / (geometry.index_heads() * geometry.index_dim()), 1, 32);
}

ConstTensor some_of(const ConstTensor& all, std::int64_t first, std::int64_t count) {
  ConstTensor part = all;
  part.data = all.at(first);
  part.shape[0] = count;
  return part;
}

}  // namespace

void Scorer::run(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& weights, const KeyRows& keys,
                 Workers& workers, Sink& sink) {
  const std::int64_t row = panel_row_floats(geometry.index_dim());
  grow_to(scratch_, workers.threads());
  for (Scratch& own : scratch_) {
    grow_to(own.rows, kPanelKeys * row);
    grow_to(own.panels, kTileKeys * row);
    grow_to(own.scores, block_queries(geometry) * kTileKeys);
    grow_to(own.spare, kTileKeys);
    grow_to(own.edge, score_edge_bytes(geometry));
  }
  const std::int64_t count = queries.shape[0];
  grow_to(queries_, count * geometry.index_heads() * geometry.index_dim());
  grow_to(weights_, count * geometry.index_heads());
  pack(geometry, queries, weights, workers);
  for_units(workers.executor(), (keys.count + kTileKeys - 1) / kTileKeys, [&](std::int64_t tile, int worker) {
    score_tile(geometry, keys, count, !weights.empty(), tile, scratch_[static_cast<std::size_t>(worker)], sink);
  });
}

void Scorer::pack(const Geometry& geometry, const ConstTensor& queries, const ConstTensor& weights, Workers& workers) {
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t block = block_queries(geometry);
  const ScoreKernels& kernels = score_kernels(default_kernels());
  for_units(workers.executor(), (queries.shape[0] + block - 1) / block, [&](std::int64_t unit, int) {
    const std::int64_t first = unit * block;
    const std::int64_t count = std::min(block, queries.shape[0] - first);
    kernels.pack(some_of(queries, first, count), queries_.data() + first * heads * geometry.index_dim());
    if (!weights.empty()) pack_head_weights(some_of(weights, first, count), weights_.data() + first * heads);
  });
}

void Scorer::score_tile(const Geometry& geometry, const KeyRows& keys, std::int64_t queries, bool weighted,
                        std::int64_t tile, Scratch& own, Sink& sink) const {
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t row = panel_row_floats(dim);
  const std::int64_t block = block_queries(geometry);
  const std::int64_t first = tile * kTileKeys;
  const std::int64_t count = std::min(kTileKeys, keys.count - first);
  const Kernels chosen = default_kernels();
  const PanelKernels& turning = panel_kernels(chosen);
  const ScoreKernels& scoring = score_kernels(chosen);
  const Widener widen(keys.type, chosen);
  std::array<const std::byte*, kTilePanels> pages;
  // Rows that were padded would be read past the last one's end.
  const bool as_they_lie = dim == row && keys.type == GGML_TYPE_F32 &&
                           keys.stride_bytes == row_bytes(DType::kF32, row) &&
                           reinterpret_cast<std::uintptr_t>(keys.first) % alignof(float) == 0;
  for (std::int64_t p = 0; p * kPanelKeys < count; ++p) {
    float* panel = own.panels.data() + p * kPanelKeys * row;
    pages[static_cast<std::size_t>(p)] = reinterpret_cast<const std::byte*>(panel);
    if (as_they_lie && (p + 1) * kPanelKeys <= count) {
      turning.turn(reinterpret_cast<const float*>(keys.first) + (first + p * kPanelKeys) * row, dim, panel);
      continue;
    }
    for (std::int64_t i = 0; i < kPanelKeys; ++i) {  // past the last key, the last again
      const std::int64_t key = std::min(first + p * kPanelKeys + i, keys.count - 1);
      widen(keys.first + key * keys.stride_bytes, dim, own.rows.data() + i * row);
    }
    turning.turn(own.rows.data(), dim, panel);
  }
  PooledKeys pooled;
  pooled.pages = pages.data();
  pooled.groups = (count + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
  pooled.dim = dim;
  for (std::int64_t query = 0; query < queries; query += block) {
    ScoreBlock task;
    task.geometry = &geometry;
    task.count = std::min(block, queries - query);
    task.queries = queries_.data() + query * heads * dim;
    task.head_weights = weighted ? weights_.data() + query * heads : nullptr;
    task.pooled = &pooled;
    task.panels = pooled.groups / kPanelKeys;
    task.edge = own.edge.data();
    task.scores = own.scores.data();
    task.stride = kTileKeys;
    scoring.score(task);
    for (std::int64_t q = 0; q < task.count; ++q)
      sink.take(query + q, first, count, own.scores.data() + q * kTileKeys, own.spare.data());
  }
}

}  // namespace seriatim::plugin
