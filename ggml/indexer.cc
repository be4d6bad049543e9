#include "indexer.hpp"

#include <algorithm>
#include <array>

#include "base/half.hpp"
#include "panel.hpp"
#include "score/score_kernels.hpp"
#include "step/for_units.hpp"
#include "tensors.hpp"

namespace seriatim::plugin {
namespace {

constexpr std::int64_t kTilePanels = 8;  // widened once for all queries, and read again from the second cache
constexpr std::int64_t kTileKeys = kTilePanels * kPanelKeys;
constexpr std::int64_t kBlockBytes = std::int64_t{128} << 10;  // of queries that share a pass over a tile

template <typename T>
void grow(AlignedBuffer<T>& buffer, std::int64_t entries) {
  if (buffer.size() < entries) buffer = AlignedBuffer<T>(entries);
}

Result<Geometry> geometry_of(const ggml_tensor* node) {
  GeometryOptions options;
  options.pooling = Pooling::kNone;
  options.scale_at = ScaleAt::kNowhere;
  options.group_tokens = 1;
  options.budget_tokens = 1;
  options.query_heads = options.kv_heads = 1;
  options.head_dim = 1;
  options.index_heads = node->src[0]->ne[1];
  options.index_dim = node->src[0]->ne[0];
  options.index_rotary_dim = 0;
  return Geometry::admit(options);
}

std::int64_t block_queries(const Geometry& geometry) {
  return std::clamp<std::int64_t>(kBlockBytes / 4 / (geometry.index_heads() * geometry.index_dim()), 1, 32);
}

}  // namespace

bool fits_indexer(const ggml_tensor* node) {
  if (node->op != GGML_OP_LIGHTNING_INDEXER) return false;
  const ggml_tensor* q = node->src[0];
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* w = node->src[2];
  const ggml_tensor* mask = node->src[3];
  if (q == nullptr || k == nullptr || w == nullptr || mask == nullptr) return false;
  if (is_empty_somewhere(node)) return false;
  const bool types = q->type == GGML_TYPE_F32 && w->type == GGML_TYPE_F32 && mask->type == GGML_TYPE_F16 &&
                     node->type == GGML_TYPE_F32 && can_be_widened(k->type);
  const bool dense = q->nb[0] == sizeof(float) && w->nb[0] == sizeof(float) && mask->nb[0] == sizeof(std::uint16_t) &&
                     k->nb[0] == ggml_type_size(k->type) && node->nb[0] == sizeof(float);
  const bool shapes = q->ne[0] == k->ne[0] && k->ne[1] == 1 && w->ne[0] == q->ne[1] && w->ne[1] == q->ne[2] &&
                      w->ne[2] == 1 && mask->ne[0] == k->ne[2] && mask->ne[1] == q->ne[2] && mask->ne[2] == 1 &&
                      q->ne[3] == k->ne[3] && w->ne[3] == q->ne[3] && q->ne[3] % mask->ne[3] == 0 &&
                      node->ne[0] == k->ne[2] && node->ne[1] == q->ne[2] && node->ne[2] == 1 && node->ne[3] == q->ne[3];
  return types && dense && shapes && geometry_of(node).ok();
}

Outcome Indexer::compute(const ggml_tensor* node, Workers& workers, const AbortCallback& abort) {
  const Geometry geometry = *geometry_of(node);
  const std::int64_t row = panel_row_floats(geometry.index_dim());
  const std::int64_t tokens = node->src[0]->ne[2];
  scratch_.resize(
      static_cast<std::size_t>(std::max<std::int64_t>(static_cast<std::int64_t>(scratch_.size()), workers.threads())));
  for (Scratch& own : scratch_) {
    grow(own.rows, kPanelKeys * row);
    grow(own.panels, kTileKeys * row);
    grow(own.scores, block_queries(geometry) * kTileKeys);
    grow(own.edge, score_edge_bytes(geometry));
  }
  grow(queries_, tokens * geometry.index_heads() * geometry.index_dim());
  grow(weights_, tokens * geometry.index_heads());
  for (std::int64_t stream = 0; stream < node->ne[3]; ++stream) {
    if (abort.wants_to_stop()) return Outcome::kAborted;
    one_stream(node, geometry, stream, workers);
  }
  return Outcome::kDone;
}

void Indexer::one_stream(const ggml_tensor* node, const Geometry& geometry, std::int64_t stream, Workers& workers) {
  const ggml_tensor* k = node->src[1];
  const ggml_tensor* mask = node->src[3];
  const ConstTensor queries = view3(node->src[0], DType::kF32, 2, 1, 0, stream);
  ConstTensor weights = view3(node->src[2], DType::kF32, 1, 0, 2, stream);
  weights.rank = 2;
  const std::int64_t tokens = queries.shape[0];
  const std::int64_t cells = k->ne[2];
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t dim = geometry.index_dim();
  const std::int64_t block = block_queries(geometry);
  const Kernels chosen = default_kernels();
  const ScoreKernels& kernels = score_kernels(chosen);
  const PanelKernels& panels = panel_kernels(chosen);
  const auto part_of = [](const ConstTensor& all, std::int64_t first, std::int64_t count) {
    ConstTensor part = all;
    part.data = all.at(first);
    part.shape[0] = count;
    return part;
  };
  for_units(workers.executor(), (tokens + block - 1) / block, [&](std::int64_t unit, int) {
    const std::int64_t first = unit * block;
    const std::int64_t count = std::min(block, tokens - first);
    kernels.pack(part_of(queries, first, count), queries_.data() + first * heads * dim);
    pack_head_weights(part_of(weights, first, count), weights_.data() + first * heads);
  });
  const auto dtype = plain_dtype(k->type);
  for_units(workers.executor(), (cells + kTileKeys - 1) / kTileKeys, [&](std::int64_t tile, int worker) {
    Scratch& own = scratch_[static_cast<std::size_t>(worker)];
    const std::int64_t row = panel_row_floats(dim);
    const std::int64_t first = tile * kTileKeys;
    const std::int64_t count = std::min(kTileKeys, cells - first);
    std::array<const std::byte*, kTilePanels> pages;
    for (std::int64_t p = 0; p * kPanelKeys < count; ++p) {
      for (std::int64_t i = 0; i < kPanelKeys; ++i) {
        const std::int64_t cell = std::min(first + p * kPanelKeys + i, cells - 1);
        const std::byte* key = bytes_of(k) + stream * stride(k, 3) + cell * stride(k, 2);
        float* to = own.rows.data() + i * row;
        dtype.has_value() ? panels.widen(key, *dtype, dim, to) : widen_row(k->type, key, dim, to);
      }
      float* panel = own.panels.data() + p * kPanelKeys * row;
      panels.turn(own.rows.data(), dim, panel);
      pages[static_cast<std::size_t>(p)] = reinterpret_cast<const std::byte*>(panel);
    }
    PooledKeys keys;
    keys.pages = pages.data();
    keys.groups = (count + kPanelKeys - 1) / kPanelKeys * kPanelKeys;
    keys.dim = dim;
    for (std::int64_t query = 0; query < tokens; query += block) {
      ScoreBlock task;
      task.geometry = &geometry;
      task.count = std::min(block, tokens - query);
      task.queries = queries_.data() + query * heads * dim;
      task.head_weights = weights_.data() + query * heads;
      task.pooled = &keys;
      task.panels = keys.groups / kPanelKeys;
      task.edge = own.edge.data();
      task.scores = own.scores.data();
      task.stride = kTileKeys;
      kernels.score(task);
      for (std::int64_t t = 0; t < task.count; ++t) {
        const auto* masked = reinterpret_cast<const std::uint16_t*>(bytes_of(mask) + (query + t) * stride(mask, 1) +
                                                                    stream % mask->ne[3] * stride(mask, 3));
        auto* out = reinterpret_cast<float*>(static_cast<std::byte*>(node->data) + (query + t) * stride(node, 1) +
                                             stream * stride(node, 3));
        const float* scores = own.scores.data() + t * kTileKeys;
        float* wide = own.rows.data();  // its keys are in the panels
        for (std::int64_t at = 0; at < count; at += row) {
          const std::int64_t some = std::min(row, count - at);
          panels.widen(reinterpret_cast<const std::byte*>(masked + first + at), DType::kF16, some, wide);
          for (std::int64_t i = 0; i < some; ++i) out[first + at + i] = scores[at + i] + wide[i];
        }
      }
    }
  });
}

}  // namespace seriatim::plugin
