// Approximate scores in plain C++: what any machine can do, to hold the fast ones to and to be forced in tests.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.hpp"
#include "screen/screen_kernels.hpp"

namespace seriatim {
namespace {

using Lanes = std::array<float, 16>;

float low_of(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
float high_of(std::uint32_t word) { return std::bit_cast<float>(word & 0xffff0000u); }

std::uint32_t word_of(float even, float odd) { return to_bf16(even) | static_cast<std::uint32_t>(to_bf16(odd)) << 16; }

float norm_of(float squares) { return std::sqrt(squares * kNormGrowth + kNormFlush) * kNormRound; }

// One panel as words, and the norms of its groups.
void prepare(const std::byte* panel, DType dtype, std::int64_t dim, std::uint32_t* words, float* norms, float* errors) {
  const std::int64_t bytes = dtype_bytes(dtype);
  for (std::size_t lane = 0; lane < 16; ++lane) {
    float squares = 0.0f, left = 0.0f;
    const auto key = [&](std::int64_t i) {
      const float x = load_element(panel + (i * 16 + static_cast<std::int64_t>(lane)) * bytes, dtype);
      const float near = from_bf16(to_bf16(x));
      squares += near * near;
      left += (x - near) * (x - near);
      return near;
    };
    for (std::int64_t i = 0; i < dim; i += 2) {
      const float even = key(i);
      words[i / 2 * 16 + static_cast<std::int64_t>(lane)] = word_of(even, i + 1 < dim ? key(i + 1) : 0.0f);
    }
    norms[lane] = norm_of(squares);
    errors[lane] = norm_of(left);
  }
}

// Words `step` apart of one row, and a panel's.
Lanes products(const std::uint32_t* query, std::int64_t step, const std::uint32_t* keys, std::int64_t words) {
  Lanes sums{};
  for (std::int64_t i = 0; i < words; ++i) {
    const float odd = high_of(query[i * step]);
    const float even = low_of(query[i * step]);
    for (std::size_t lane = 0; lane < 16; ++lane) {
      const std::uint32_t key = keys[i * 16 + static_cast<std::int64_t>(lane)];
      sums[lane] += odd * high_of(key);
      sums[lane] += even * low_of(key);
    }
  }
  return sums;
}

// As the canonical score goes on from its dots.
void finish(const Geometry& geometry, const float* weight, Lanes dots, Lanes& sums) {
  const float inverse_sqrt_dim = static_cast<float>(1.0 / std::sqrt(static_cast<double>(geometry.index_dim())));
  const ScaleAt place = geometry.scale_at();
  for (std::size_t lane = 0; lane < 16; ++lane) {
    float dot = dots[lane];
    if (place == ScaleAt::kBeforeRelu || place == ScaleAt::kAfterRelu) dot *= inverse_sqrt_dim;
    if (geometry.relu() && dot < 0.0f) dot = 0.0f;
    sums[lane] += weight == nullptr ? dot : *weight * dot;
  }
}

void score(const ScreenBlock& block) {
  const Geometry& geometry = *block.geometry;
  const Panels panels(*block.pooled);
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t words = screen_words(geometry.index_dim());
  const std::int64_t rows = block.count * heads;
  const float sqrt_dim = std::sqrt(static_cast<float>(geometry.index_dim()));
  for (std::int64_t p = 0; p < block.panels; ++p) {
    const std::byte* panel = panels.whole(block.first_panel + p, block.edge);
    prepare(panel, panels.dtype(), geometry.index_dim(), block.keys, block.norms + p * 16, block.errors + p * 16);
    for (std::int64_t q = 0; q < block.count; ++q) {
      Lanes sums{};
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t row = q * heads + h;
        const std::int64_t tile = row / kScreenRows * kScreenRows;
        const std::int64_t width = std::min(kScreenRows, rows - tile);
        const std::uint32_t* query = block.queries + tile * words + (row - tile);
        finish(geometry, block.head_weights == nullptr ? nullptr : block.head_weights + row,
               products(query, width, block.keys, words), sums);
      }
      float* to = block.scores + q * block.stride + p * 16;
      for (std::size_t lane = 0; lane < 16; ++lane)
        to[lane] = geometry.scale_at() == ScaleAt::kAfterSum ? sums[lane] / sqrt_dim : sums[lane];
    }
  }
}

std::int64_t reach(const ScreenReach& task, std::span<std::int32_t> groups) {
  std::size_t found = 0;
  for (std::size_t g = 0; g < task.scores.size(); ++g) {
    if (!(task.scores[g] + task.bound.of(task.norms[g], task.errors[g]) >= task.threshold)) continue;
    if (found == groups.size()) return static_cast<std::int64_t>(found) + 1;
    groups[found++] = static_cast<std::int32_t>(g);
  }
  return static_cast<std::int64_t>(found);
}

}  // namespace

const ScreenKernels& screen_portable() {
  static constexpr ScreenKernels kTable{"portable", false, score, reach};
  return kTable;
}

const ScreenKernels& screen_kernels(Kernels kernels) {
  const ScreenKernels* const native = screen_native();
  return kernels.is_reference() || native == nullptr ? screen_portable() : *native;
}

void pack_screen_queries(const ConstTensor& queries, std::uint32_t* packed) {
  const std::int64_t heads = queries.shape[1];
  const std::int64_t dim = queries.shape[2];
  const std::int64_t words = screen_words(dim);
  const std::int64_t rows = queries.shape[0] * heads;
  for (std::int64_t row = 0; row < rows; row += kScreenRows) {
    const std::int64_t tile = std::min(kScreenRows, rows - row);
    for (std::int64_t r = 0; r < tile; ++r) {
      const std::byte* from = queries.at((row + r) / heads, (row + r) % heads);
      const auto element = [&](std::int64_t i) {
        return i < dim ? load_element(from + i * queries.stride_bytes[2], queries.dtype) : 0.0f;
      };
      std::uint32_t* to = packed + row * words + r;
      for (std::int64_t i = 0; i < words; ++i) to[i * tile] = word_of(element(2 * i), element(2 * i + 1));
    }
  }
}

}  // namespace seriatim
