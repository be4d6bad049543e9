// Every implementation gathers the bits of the reference: odd shapes, all dtypes, values that alias the keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "gather/gather_kernels.hpp"
#include "support/bits.hpp"
#include "support/plain_layer.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

struct Shape {
  std::int64_t kv_heads, head_dim, value_dim;
  bool alias = false;
};

constexpr Shape kShapes[] = {{2, 256, 256},       {2, 8, 8},       {1, 5, 3}, {3, 72, 40},
                             {1, 576, 512, true}, {1, 9, 7, true}, {2, 33, 1}};
constexpr std::int64_t kAnchor = 1000;

class GatherAgreement : public ::testing::TestWithParam<std::string> {};

TEST_P(GatherAgreement, TheForcedImplementationIsTheOneThatRuns) {
  std::string name(gather_kernels(*Kernels::named(GetParam())).name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  EXPECT_EQ(name, GetParam());
}

TEST_P(GatherAgreement, OnOddShapesOfEveryDtype) {
  std::int64_t compared = 0;
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      Random random(75);
      GeometryOptions options;
      options.query_heads = shape.kv_heads;
      options.kv_heads = shape.kv_heads;
      options.head_dim = shape.head_dim;
      options.value_dim = shape.value_dim;
      options.values_alias_keys = shape.alias;
      options.kv_dtype = dtype;
      const Geometry geometry = *Geometry::admit(options);
      const HostTensor keys = random_tensor(random, dtype, {150, shape.kv_heads, shape.head_dim});
      const HostTensor values = random_tensor(random, dtype, {150, shape.kv_heads, shape.value_dim});
      const PlainLayer layer(geometry, kAnchor, keys, shape.alias ? nullptr : &values, 48, 5);
      std::vector<std::int32_t> positions;
      for (std::int32_t t = 0; t < 150 && positions.size() < kSplitEntries; ++t) {
        if (random.below(10) < 8) positions.push_back(static_cast<std::int32_t>(kAnchor) + t);
      }
      const auto gather = [&](Kernels kernels) {
        std::vector<float> tile(positions.size() * static_cast<std::size_t>(shape.head_dim + shape.value_dim), -77.0f);
        float* value = tile.data() + positions.size() * static_cast<std::size_t>(shape.head_dim);
        gather_tile(layer.view(), shape.kv_heads - 1, positions, {tile.data(), value}, kernels);
        return tile;
      };
      const auto want = gather(Kernels::reference());
      EXPECT_TRUE(same_bits(gather(*Kernels::named(GetParam())), want)) << dtype_name(dtype) << " " << shape.head_dim;
      compared += static_cast<std::int64_t>(want.size());
    }
  }
  EXPECT_GT(compared, 300'000);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, GatherAgreement, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace seriatim
