#include "panel.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "graph.hpp"
#include "support/bits.hpp"
#include "widener.hpp"

namespace seriatim::plugin {
namespace {

using namespace testing;
using seriatim::testing::Random;
using seriatim::testing::same_bits;

TEST(Panel, RowsAreWidenedAsGgmlWidensThemByAllKernels) {
  Random random(1);
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_1}) {
    for (const std::int64_t elements : {32, 96, 576}) {
      Graph graph;
      const ggml_tensor* t = graph.random(random, type, {elements, 5}, 3.0f);
      for (std::int64_t row = 0; row < 5; ++row) {
        const auto* from = static_cast<const std::byte*>(t->data) + static_cast<std::size_t>(row) * t->nb[1];
        std::vector<float> want(static_cast<std::size_t>(elements)), got(want.size());
        widen_row(type, from, elements, want.data());
        for (const Kernels kernels : Kernels::available()) {
          Widener(type, kernels)(from, elements, got.data());
          EXPECT_TRUE(same_bits(got, want)) << ggml_type_name(type) << ", " << kernels.name();
        }
      }
    }
  }
}

TEST(Panel, IsItsRowsTurnedByAllKernels) {
  Random random(2);
  for (const std::int64_t dim : {4, 40, 64, 128}) {
    const std::int64_t row = panel_row_floats(dim);
    std::vector<float> rows(static_cast<std::size_t>(kPanelKeys * row));
    for (float& x : rows) x = random.uniform();
    for (const Kernels kernels : Kernels::available()) {
      std::vector<float> panel(rows.size());
      panel_kernels(kernels).turn(rows.data(), dim, panel.data());
      for (std::int64_t k = 0; k < kPanelKeys; ++k) {
        for (std::int64_t i = 0; i < dim; ++i)
          ASSERT_EQ(panel[static_cast<std::size_t>(i * kPanelKeys + k)], rows[static_cast<std::size_t>(k * row + i)]);
      }
    }
  }
}

}  // namespace
}  // namespace seriatim::plugin
