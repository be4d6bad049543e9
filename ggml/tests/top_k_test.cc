// TOP_K against a sort, and against ggml's own.
#include "top_k.hpp"

#include <algorithm>
#include <numeric>

#include "graph.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;

// The k greatest, ties to the lower cell, NaN after all numbers; ascending.
std::vector<std::int32_t> sorted_row(const float* scores, std::int64_t cells, std::int64_t keep) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(cells));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return !std::isnan(scores[a]) && std::isnan(scores[b]);
    return scores[a] > scores[b];
  });
  order.resize(static_cast<std::size_t>(keep));
  std::sort(order.begin(), order.end());
  return order;
}

void expect_exact(const ggml_tensor* node) {
  const ggml_tensor* scores = node->src[0];
  std::int64_t looked_at = 0;
  for (std::int64_t row = 0; row < ggml_nrows(node); ++row) {
    const std::int64_t i1 = row % node->ne[1], i2 = row / node->ne[1] % node->ne[2],
                       i3 = row / node->ne[1] / node->ne[2];
    const auto* from = reinterpret_cast<const float*>(
        static_cast<const std::byte*>(scores->data) + static_cast<std::size_t>(i1) * scores->nb[1] +
        static_cast<std::size_t>(i2) * scores->nb[2] + static_cast<std::size_t>(i3) * scores->nb[3]);
    const auto want = sorted_row(from, scores->ne[0], node->ne[0]);
    const auto* got = static_cast<const std::int32_t*>(node->data) + row * node->ne[0];
    ASSERT_TRUE(std::equal(want.begin(), want.end(), got)) << "row " << row << " of " << scores->ne[0] << " cells";
    ++looked_at;
  }
  EXPECT_GT(looked_at, 0);
}

TEST(TopK, IsTheExactSetInAscendingOrderWhateverTheThreads) {
  Random random(1);
  for (const std::int64_t cells : {1, 7, 300, 5000, 20000}) {
    for (const int kinds : {0, 3, 40}) {  // of scores; 0: hardly any two alike
      Graph graph;
      ggml_tensor* scores = graph.random(random, GGML_TYPE_F32, {cells, 3, 2, 2}, 10.0f);
      auto* numbers = static_cast<float*>(scores->data);
      for (std::int64_t i = 0; i < ggml_nelements(scores); ++i) {
        if (kinds > 0) numbers[i] = std::floor(numbers[i] * static_cast<float>(kinds) / 20.0f);
        if (i % 11 == 0) numbers[i] = -kInfinity;
      }
      const std::int64_t keep = std::max<std::int64_t>(1, cells * 2 / 7);
      ggml_tensor* node = ggml_top_k(graph.context(), scores, static_cast<int>(keep));
      ASSERT_TRUE(fits_top_k(node));
      for (const int threads : {1, 2, 4}) {
        TopK top_k;
        by_us(top_k, node, threads);
        expect_exact(node);
      }
    }
  }
}

TEST(TopK, HasTheSetOfGgmlWhereNoTwoScoresAreAlike) {
  Random random(2);
  Graph graph;
  ggml_tensor* scores = graph.tensor(GGML_TYPE_F32, {4096, 5});
  for (std::int64_t row = 0; row < 5; ++row) {
    float* numbers = static_cast<float*>(scores->data) + row * 4096;
    std::iota(numbers, numbers + 4096, -1000.0f);
    for (std::int64_t i = 4095; i > 0; --i) std::swap(numbers[i], numbers[random.below(i + 1)]);
  }
  ggml_tensor* node = ggml_top_k(graph.context(), scores, 100);
  std::vector<std::byte> want = graph.by_ggml(node);
  auto* cells = reinterpret_cast<std::int32_t*>(want.data());
  for (int row = 0; row < 5; ++row) std::sort(cells + row * 100, cells + (row + 1) * 100);
  TopK top_k;
  EXPECT_EQ(by_us(top_k, node, 2), want);
}

TEST(TopK, CutsLongRowsIntoPartsAndNoTieMoves) {
  Random random(3);
  Graph graph(std::size_t{32} << 20);
  constexpr std::int64_t kCells = std::int64_t{5} << 17;
  ggml_tensor* scores = graph.tensor(GGML_TYPE_F32, {kCells});
  auto* numbers = static_cast<float*>(scores->data);
  for (const int kinds : {2, 1000, 1 << 24}) {
    for (std::int64_t i = 0; i < kCells; ++i) numbers[i] = static_cast<float>(random.below(kinds));
    ggml_tensor* node = ggml_top_k(graph.context(), scores, 2051);
    for (const int threads : {1, 2, 4}) {
      TopK top_k;
      by_us(top_k, node, threads);
      expect_exact(node);
    }
  }
}

TEST(TopK, ReadsRowsThatLieApart) {
  Random random(4);
  Graph graph;
  ggml_tensor* wide = graph.random(random, GGML_TYPE_F32, {900, 4, 3}, 5.0f);
  ggml_tensor* scores = ggml_view_3d(graph.context(), wide, 700, 2, 3, wide->nb[1] * 2, wide->nb[2], 400);
  ggml_tensor* node = ggml_top_k(graph.context(), scores, 31);
  ASSERT_TRUE(fits_top_k(node));
  TopK top_k;
  by_us(top_k, node, 2);
  expect_exact(node);
}

TEST(TopK, ChoosesNaNOnlyAfterAllNumbersTheLowestCellsFirst) {
  Random random(5);
  for (const std::int64_t cells : {64, 9000, 1 << 19}) {
    Graph graph;
    ggml_tensor* scores = graph.random(random, GGML_TYPE_F32, {cells}, 5.0f);
    auto* numbers = static_cast<float*>(scores->data);
    for (std::int64_t i = 0; i < cells; ++i) {
      if (i % 4 != 1) numbers[i] = std::numeric_limits<float>::quiet_NaN();
      if (i % 8 == 1) numbers[i] = -kInfinity;
    }
    for (const std::int64_t keep : {cells / 8, cells / 4, cells / 3, cells}) {
      ggml_tensor* node = ggml_top_k(graph.context(), scores, static_cast<int>(keep));
      TopK top_k;
      by_us(top_k, node, 2);
      expect_exact(node);
    }
  }
}

TEST(TopK, StopsWhenItIsAskedTo) {
  Random random(6);
  Graph graph;
  ggml_tensor* node = ggml_top_k(graph.context(), graph.random(random, GGML_TYPE_F32, {512, 4}), 8);
  Workers workers;
  TopK top_k;
  EXPECT_EQ(top_k.compute(node, workers, {[](void*) { return true; }, nullptr}), Outcome::kAborted);
}

}  // namespace
}  // namespace seriatim::plugin
