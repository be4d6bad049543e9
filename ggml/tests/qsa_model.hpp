// A sparse layer of qwen4exp as llama.cpp's graph has it, over random caches: what its inputs say of sequences that
// only grew, and the nodes from the index cache to the output of attention. The tests and the benchmark run it through
// ggml's scheduler.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "claims.hpp"
#include "plugin.hpp"

namespace seriatim::plugin::testing {

struct QsaShape {
  std::int64_t held = 150;  // tokens of each stream, those of this batch included
  std::int64_t tokens = 3;  // of each stream in this batch
  std::int64_t streams = 1;
  std::int64_t cells = 256;
  std::int64_t budget = 32;
  std::int64_t group = 4;
  std::int64_t dim = 64;
  std::int64_t rotary = 32;
  std::int64_t index_heads = 4;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 32;
  ggml_type type = GGML_TYPE_F16;  // of the caches
  float rope_base = 1e4f;
  float eps = 1e-6f;
  std::int64_t groups() const { return (cells + group - 1) / group; }
  std::int64_t width() const { return std::min(cells, budget + group - 1); }
};

// What a graph ends with.
enum class QsaEnd { kSelection, kAttention };

class QsaModel {
 public:
  // `uniform` gives random numbers in -1 .. 1.
  QsaModel(const QsaShape& s, const std::function<float()>& uniform) : shape(s) {
    held_context_ = ggml_init({ggml_tensor_overhead() * 16, nullptr, true});
    ggml_context* c = held_context_;
    index_cache = ggml_new_tensor_3d(c, s.type, s.dim, s.cells, s.streams);
    ggml_set_name(index_cache, "cache_idx_k_l0");
    keys = ggml_new_tensor_4d(c, s.type, s.head_dim, s.kv_heads, s.cells, s.streams);
    values = ggml_new_tensor_4d(c, s.type, s.head_dim, s.kv_heads, s.cells, s.streams);
    buffer_ = ggml_backend_alloc_ctx_tensors_from_buft(c, ggml_backend_cpu_buffer_type());
    weights_context_ = ggml_init({ggml_tensor_overhead(), nullptr, true});
    norm = ggml_new_tensor_1d(weights_context_, GGML_TYPE_F32, s.dim);
    weights_ = ggml_backend_alloc_ctx_tensors_from_buft(weights_context_, ggml_backend_cpu_buffer_type());
    ggml_backend_buffer_set_usage(weights_, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (ggml_tensor* t : {index_cache, keys, values, norm}) fill(t, uniform, 1.0f);
    auto* weights = static_cast<float*>(norm->data);
    for (std::int64_t i = 0; i < s.dim; ++i) weights[i] = 1.0f + 0.25f * weights[i];
    const std::int64_t all = s.tokens * s.streams;
    for (std::int64_t i = 0; i < s.dim * s.index_heads * all; ++i) index_queries.push_back(uniform());
    for (std::int64_t i = 0; i < s.head_dim * s.heads * all; ++i) queries.push_back(2.0f * uniform());
  }
  QsaModel(const QsaModel&) = delete;
  QsaModel& operator=(const QsaModel&) = delete;
  ~QsaModel() {
    if (context_ != nullptr) ggml_free(context_);
    ggml_backend_buffer_free(weights_);
    ggml_free(weights_context_);
    ggml_backend_buffer_free(buffer_);
    ggml_free(held_context_);
  }

  // The other's numbers, of the same shape.
  void take_from(const QsaModel& other) {
    for (const auto& [to, from] : {std::pair(index_cache, other.index_cache), std::pair(keys, other.keys),
                                   std::pair(values, other.values), std::pair(norm, other.norm)}) {
      std::memcpy(to->data, from->data, ggml_nbytes(to));
    }
    index_queries = other.index_queries;
    queries = other.queries;
  }

  // The graph; queries of all streams from token `first` on, `count` of each.
  void build(std::int64_t first, std::int64_t count) {
    if (context_ != nullptr) ggml_free(context_);
    context_ = ggml_init({ggml_tensor_overhead() * 256 + ggml_graph_overhead(), nullptr, true});
    first_ = first;
    count_ = count;
    const QsaShape& s = shape;
    ggml_context* c = context_;
    const std::int64_t r = s.group, nb = s.groups(), n = count, m = s.streams;
    cell_group_ = input(ggml_new_tensor_2d(c, GGML_TYPE_I32, s.cells, m));
    group_cells_ = input(ggml_new_tensor_2d(c, GGML_TYPE_I32, r * nb, m));
    positions_ = input(ggml_new_tensor_1d(c, GGML_TYPE_I32, 4 * nb * m));
    bias_ = input(ggml_new_tensor_3d(c, GGML_TYPE_F32, nb, n, m));
    mask_ = input(ggml_new_tensor_4d(c, GGML_TYPE_F16, s.cells, n, 1, m));
    index_queries_ = input(ggml_new_tensor_3d(c, GGML_TYPE_F32, s.dim, s.index_heads, n * m));
    queries_ = input(ggml_new_tensor_4d(c, GGML_TYPE_F32, s.head_dim, s.heads, n, m));

    ggml_tensor* view = ggml_view_3d(c, index_cache, s.dim, s.cells, m, index_cache->nb[1], index_cache->nb[2], 0);
    ggml_tensor* members = ggml_reshape_4d(c, ggml_get_rows(c, view, group_cells_), s.dim, r, nb, m);
    ggml_tensor* pooled = nullptr;
    for (std::int64_t i = 0; i < r; ++i) {
      ggml_tensor* slice = ggml_cont(c, ggml_view_3d(c, members, s.dim, nb, m, members->nb[2], members->nb[3],
                                                     static_cast<std::size_t>(i) * members->nb[1]));
      pooled = pooled == nullptr ? slice : ggml_add(c, pooled, slice);
    }
    pooled = ggml_reshape_3d(c, ggml_scale(c, pooled, 1.0f / static_cast<float>(r)), s.dim, nb * m, 1);
    pooled = ggml_reshape_3d(c, ggml_mul(c, ggml_rms_norm(c, pooled, s.eps), norm), s.dim, 1, nb * m);
    pooled_keys = rope(pooled, positions_);
    // A copy, so that what comes before is another split: llama.cpp's projection and rotation stand there.
    ggml_tensor* q = ggml_scale(c, index_queries_, 1.0f);
    ggml_tensor* products = ggml_mul_mat(c, ggml_reshape_3d(c, pooled_keys, s.dim, nb, m),
                                         ggml_reshape_3d(c, q, s.dim, s.index_heads * n, m));
    ggml_tensor* score = ggml_relu(c, ggml_reshape_4d(c, products, nb, s.index_heads, n, m));
    ggml_tensor* sum = nullptr;
    for (std::int64_t h = 0; h < s.index_heads; ++h) {
      ggml_tensor* slice =
          ggml_view_3d(c, score, nb, n, m, score->nb[2], score->nb[3], static_cast<std::size_t>(h) * score->nb[1]);
      sum = sum == nullptr ? ggml_cont(c, slice) : ggml_add(c, sum, slice);
    }
    group_scores = sum;
    ggml_tensor* expanded = ggml_add(c, sum, bias_);
    expanded = ggml_get_rows(c, ggml_cont(c, ggml_permute(c, expanded, 1, 0, 2, 3)), cell_group_);
    expanded = ggml_cont(c, ggml_permute(c, expanded, 1, 0, 2, 3));
    expanded = ggml_add(c, expanded, ggml_reshape_3d(c, ggml_cast(c, mask_, GGML_TYPE_F32), s.cells, n, m));
    top_k = ggml_top_k(c, expanded, static_cast<int>(s.width()));
    ggml_tensor* row = ggml_reshape_4d(c, ggml_cont(c, top_k), s.width(), n, 1, m);

    ggml_tensor* hidden = ggml_fill(c, mask_, -INFINITY);
    hidden = ggml_view_4d(c, hidden, 1, s.cells, n, m, hidden->nb[0], hidden->nb[1], hidden->nb[2], 0);
    ggml_tensor* row3 = ggml_view_4d(c, row, s.width(), n, m, 1, row->nb[1], row->nb[2], row->nb[3], 0);
    ggml_tensor* zeros = ggml_fill(c, ggml_new_tensor_4d(c, GGML_TYPE_F32, 1, s.width(), n, m), 0.0f);
    ggml_tensor* shown = ggml_set_rows(c, hidden, zeros, row3);
    shown = ggml_view_4d(c, shown, s.cells, n, 1, m, shown->nb[2], shown->nb[3], shown->nb[3], 0);
    ggml_tensor* masked = ggml_add(c, shown, mask_);
    attention = ggml_flash_attn_ext(c, ggml_permute(c, queries_, 0, 2, 1, 3), ggml_permute(c, keys, 0, 2, 1, 3),
                                    ggml_permute(c, values, 0, 2, 1, 3), masked,
                                    1.0f / std::sqrt(static_cast<float>(s.head_dim)), 0.0f, 0.0f);
    ggml_prec_set_acc(attention, GGML_PREC_F32);
    attention->op_params[4] = static_cast<std::int32_t>(s.width());
    graph_ = ggml_new_graph_custom(c, 256, false);
    ggml_build_forward_expand(graph_, zeros);
  }
  // Ends the graph there.
  ggml_cgraph* finish(QsaEnd last) {
    ggml_set_output(end(last));
    ggml_build_forward_expand(graph_, end(last));
    return graph_;
  }
  ggml_tensor* end(QsaEnd last) const { return last == QsaEnd::kAttention ? attention : top_k; }

  // The inputs as llama.cpp sets them, once the graph has its memory.
  void set_inputs() const {
    const QsaShape& s = shape;
    const std::int64_t r = s.group, nb = s.groups(), whole = s.held / r;
    std::vector<std::int32_t> cell_group, group_cells, positions(static_cast<std::size_t>(4 * nb * s.streams), 0);
    std::vector<float> bias;
    std::vector<std::uint16_t> mask;
    const auto dead = static_cast<std::int32_t>(std::min(whole, nb - 1));
    for (std::int64_t m = 0; m < s.streams; ++m) {
      for (std::int64_t cell = 0; cell < s.cells; ++cell)
        cell_group.push_back(cell / r < whole ? static_cast<std::int32_t>(cell / r) : dead);
      for (std::int64_t i = 0; i < r * nb; ++i) group_cells.push_back(i / r < whole ? static_cast<std::int32_t>(i) : 0);
      for (std::int64_t axis = 0; axis < 4; ++axis) {
        for (std::int64_t b = 0; b < whole; ++b)
          positions[static_cast<std::size_t>((axis * s.streams + m) * nb + b)] = static_cast<std::int32_t>(b * r);
      }
      for (std::int64_t t = first_; t < first_ + count_; ++t) {
        const std::int64_t at = position(t);
        for (std::int64_t b = 0; b < nb; ++b) {
          float forced = b < whole ? (b * r >= (at + 1) / r * r ? 1e9f : 0.0f) : -INFINITY;
          if (whole < nb && b == dead) forced = 1e9f;
          bias.push_back(forced);
        }
        for (std::int64_t cell = 0; cell < s.cells; ++cell) mask.push_back(cell <= at ? 0x0000 : 0xfc00);
      }
    }
    set(cell_group_, cell_group);
    set(group_cells_, group_cells);
    set(positions_, positions);
    set(bias_, bias);
    set(mask_, mask);
    set(index_queries_, part(index_queries, s.dim * s.index_heads));
    set(queries_, part(queries, s.head_dim * s.heads));
  }
  // Of token `t` of a stream.
  std::int64_t position(std::int64_t t) const { return shape.held - shape.tokens + t; }

  const QsaShape shape;
  ggml_tensor* index_cache;
  ggml_tensor* keys;
  ggml_tensor* values;
  ggml_tensor* norm;
  std::vector<float> index_queries;  // [streams][tokens][index_heads][dim]
  std::vector<float> queries;        // [streams][tokens][heads][head_dim]
  // Of the last graph.
  ggml_tensor* pooled_keys = nullptr;
  ggml_tensor* group_scores = nullptr;
  ggml_tensor* top_k = nullptr;
  ggml_tensor* attention = nullptr;

 private:
  static ggml_tensor* input(ggml_tensor* t) {
    ggml_set_input(t);
    return t;
  }
  ggml_tensor* rope(ggml_tensor* x, ggml_tensor* positions) const {
    const int pairs = static_cast<int>(shape.rotary) / 2;
    int sections[4] = {pairs - (pairs + 1) / 3 - pairs / 3, (pairs + 1) / 3, pairs / 3, 0};
    return ggml_rope_multi(context_, x, positions, nullptr, static_cast<int>(shape.rotary), sections,
                           GGML_ROPE_TYPE_IMROPE, 1 << 18, shape.rope_base, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
  }
  // The batch's part of numbers of all tokens.
  std::vector<float> part(const std::vector<float>& all, std::int64_t each) const {
    std::vector<float> some;
    for (std::int64_t m = 0; m < shape.streams; ++m) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>((m * shape.tokens + first_) * each);
      some.insert(some.end(), from, from + static_cast<std::ptrdiff_t>(count_ * each));
    }
    return some;
  }
  template <typename T>
  static void set(ggml_tensor* t, const std::vector<T>& numbers) {
    if (t->buffer != nullptr) ggml_backend_tensor_set(t, numbers.data(), 0, numbers.size() * sizeof(T));
  }
  static void fill(ggml_tensor* t, const std::function<float()>& uniform, float scale) {
    std::vector<float> row(static_cast<std::size_t>(t->ne[0]));
    for (std::int64_t i = 0; i < ggml_nrows(t); ++i) {
      for (float& x : row) x = scale * uniform();
      auto* to = static_cast<std::byte*>(t->data) + static_cast<std::size_t>(i) * t->nb[1];
      if (t->type == GGML_TYPE_F32) {
        std::memcpy(to, row.data(), row.size() * sizeof(float));
      } else {
        ggml_quantize_chunk(t->type, row.data(), to, 0, 1, t->ne[0], nullptr);
      }
    }
  }

  ggml_context* held_context_;
  ggml_backend_buffer_t buffer_;
  ggml_context* weights_context_;
  ggml_backend_buffer_t weights_;
  ggml_context* context_ = nullptr;
  ggml_cgraph* graph_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t count_ = 0;
  ggml_tensor* cell_group_ = nullptr;
  ggml_tensor* group_cells_ = nullptr;
  ggml_tensor* positions_ = nullptr;
  ggml_tensor* bias_ = nullptr;
  ggml_tensor* mask_ = nullptr;
  ggml_tensor* index_queries_ = nullptr;
  ggml_tensor* queries_ = nullptr;
};

// A context of llama.cpp's: our backend, if asked for, before the CPU's, and a scheduler.
class QsaContext {
 public:
  explicit QsaContext(int threads, bool with_us = true) {
    if (with_us) {
      backends_.push_back(ggml_backend_dev_init(ggml_backend_reg_dev_get(registry(), 0), nullptr));
      reinterpret_cast<ggml_backend_set_n_threads_t>(
          ggml_backend_reg_get_proc_address(registry(), "ggml_backend_set_n_threads"))(backends_[0], threads);
    }
    backends_.push_back(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backends_.back(), threads);
    sched_ = ggml_backend_sched_new(backends_.data(), nullptr, static_cast<int>(backends_.size()), 512, false, false);
  }
  QsaContext(const QsaContext&) = delete;
  QsaContext& operator=(const QsaContext&) = delete;
  ~QsaContext() {
    ggml_backend_sched_free(sched_);
    for (ggml_backend_t backend : backends_) ggml_backend_free(backend);
  }

  ggml_backend_sched_t sched() const { return sched_; }

  // Of a graph that was built and not finished.
  bool prepare(QsaModel& model, QsaEnd end) {
    open_gate(model);
    graph_ = model.finish(end);
    ggml_backend_sched_reset(sched_);
    if (!ggml_backend_sched_alloc_graph(sched_, graph_)) return false;
    model.set_inputs();
    return true;
  }
  bool compute() { return ggml_backend_sched_graph_compute(sched_, graph_) == GGML_STATUS_SUCCESS; }

 private:
  // As if graphs of another number of tokens had been built before.
  static void open_gate(const QsaModel& model) {
    ggml_tensor q = *model.attention->src[0], node = *model.attention;
    q.ne[1] += 1;
    node.src[0] = &q;
    flash_gate().opens_for(&node);
    flash_gate().opens_for(model.attention);
  }

  std::vector<ggml_backend_t> backends_;
  ggml_backend_sched_t sched_;
  ggml_cgraph* graph_ = nullptr;
};

}  // namespace seriatim::plugin::testing
