// Scores against their f64 twin, within a stated bound, for every option that gives other bits.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "seriatim/oracle.hpp"
#include "seriatim/score.hpp"
#include "support/bits.hpp"
#include "support/random.hpp"

namespace seriatim {
namespace {

using namespace testing;

struct Options {
  bool relu;
  ScaleAt scale_at;
  bool weights;
  DType dtype;
};

class ScoreTwin : public ::testing::TestWithParam<Options> {};

HostTensor magnitudes_of(HostTensor tensor) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, std::fabs(tensor.get(i)));
  return tensor;
}

constexpr std::int64_t kGroups = 200;
constexpr std::int64_t kHeads = 5;
constexpr std::int64_t kDim = 24;

Geometry admit(const Options& o, bool relu) {
  GeometryOptions options;
  options.group_tokens = 1;
  options.budget_tokens = 8;
  options.index_heads = kHeads;
  options.index_dim = kDim;
  options.index_rotary_dim = 0;
  options.pooling = Pooling::kNone;
  options.relu = relu;
  options.scale_at = o.scale_at;
  options.index_dtype = o.dtype;
  return *Geometry::admit(options);
}

// Every step is a chain of at most index_dim + index_heads roundings over terms whose magnitudes add up to the twin's
// score of the magnitudes, and three more for the scale.
constexpr double kBound = 1.01 * static_cast<double>(kDim + kHeads + 3) * 0x1p-24;

TEST_P(ScoreTwin, IsMetWithinTheBound) {
  const Geometry geometry = admit(GetParam(), GetParam().relu);
  Random random(121);
  const HostTensor pooled = random_tensor(random, GetParam().dtype, {kGroups, kDim});
  std::vector<std::byte> panels(static_cast<std::size_t>(panel_bytes(geometry, kGroups)));
  ASSERT_TRUE(pack_pooled_keys(geometry, pooled.view(), panels.data()).ok());
  const std::byte* pages[] = {panels.data()};
  const PooledKeys visible{.pages = pages,
                           .page_groups = 208,
                           .offset_bytes = 0,
                           .first_slot = 0,
                           .groups = kGroups,
                           .dim = kDim,
                           .dtype = GetParam().dtype,
                           .max_abs = 1e30f};
  double worst = 0.0;
  std::int64_t negative = 0;
  std::int64_t zero = 0;
  for (int turn = 0; turn < 20; ++turn) {
    const HostTensor query = random_tensor(random, GetParam().dtype, {kHeads, kDim});
    const HostTensor weights = random_tensor(random, DType::kF32, {kHeads});
    const ConstTensor given = GetParam().weights ? weights.view() : ConstTensor{};
    const HostTensor weight_magnitudes = magnitudes_of(weights);
    const ConstTensor given_magnitudes = GetParam().weights ? weight_magnitudes.view() : ConstTensor{};
    std::vector<float> got(kGroups);
    std::vector<double> exact(kGroups);
    std::vector<double> magnitude(kGroups);
    ASSERT_TRUE(score_groups(geometry, query.view(), given, visible, got).ok());
    ASSERT_TRUE(score_f64(geometry, query.view(), given, pooled.view(), exact).ok());
    const Geometry no_relu = admit(GetParam(), false);
    ASSERT_TRUE(
        score_f64(no_relu, magnitudes_of(query).view(), given_magnitudes, magnitudes_of(pooled).view(), magnitude)
            .ok());
    for (std::size_t g = 0; g < kGroups; ++g) {
      const double error = std::fabs(static_cast<double>(got[g]) - exact[g]) / magnitude[g];
      worst = std::max(worst, error);
      ASSERT_LE(error, kBound) << "group " << g << ": " << got[g] << " where " << exact[g] << " is near";
      negative += got[g] < 0.0f ? 1 : 0;
      zero += got[g] == 0.0f ? 1 : 0;
    }
    EXPECT_TRUE(varies(std::span<const float>(got)));
  }
  EXPECT_GT(worst, 0.0) << "f32 was compared with f64";
  // Without a relu or with signed weights 0 is no floor; else it is.
  const bool floor = GetParam().relu && !GetParam().weights;
  EXPECT_EQ(negative > 0, !floor);
  EXPECT_EQ(zero > 0, GetParam().relu);
}

std::vector<Options> every_option() {
  std::vector<Options> all;
  for (const bool relu : {true, false}) {
    for (const ScaleAt scale_at : {ScaleAt::kAfterSum, ScaleAt::kBeforeRelu, ScaleAt::kAfterRelu, ScaleAt::kNowhere}) {
      for (const bool weights : {false, true}) {
        for (const DType dtype : {DType::kF32, DType::kBf16}) all.push_back({relu, scale_at, weights, dtype});
      }
    }
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Options>& option) {
  const char* scale[] = {"after_sum", "before_relu", "after_relu", "nowhere"};
  return std::string(option.param.relu ? "relu_" : "plain_") + scale[static_cast<std::size_t>(option.param.scale_at)] +
         (option.param.weights ? "_weights_" : "_") + std::string(dtype_name(option.param.dtype));
}

INSTANTIATE_TEST_SUITE_P(Options, ScoreTwin, ::testing::ValuesIn(every_option()), name_of);

TEST(ScoreTwinOptions, EachPlaceOfTheScaleGivesItsOwnBits) {
  Random random(122);
  const HostTensor pooled = random_tensor(random, DType::kF32, {kGroups, kDim});
  const HostTensor query = random_tensor(random, DType::kF32, {kHeads, kDim});
  std::vector<std::vector<float>> scores;
  for (const ScaleAt scale_at : {ScaleAt::kAfterSum, ScaleAt::kBeforeRelu, ScaleAt::kAfterRelu, ScaleAt::kNowhere}) {
    const Geometry geometry = admit({true, scale_at, false, DType::kF32}, true);
    std::vector<std::byte> panels(static_cast<std::size_t>(panel_bytes(geometry, kGroups)));
    ASSERT_TRUE(pack_pooled_keys(geometry, pooled.view(), panels.data()).ok());
    const std::byte* pages[] = {panels.data()};
    const PooledKeys visible{.pages = pages,
                             .page_groups = 208,
                             .offset_bytes = 0,
                             .first_slot = 0,
                             .groups = kGroups,
                             .dim = kDim,
                             .dtype = DType::kF32,
                             .max_abs = 1e30f};
    scores.emplace_back(kGroups);
    ASSERT_TRUE(score_groups(geometry, query.view(), {}, visible, scores.back()).ok());
  }
  EXPECT_FALSE(same_bits(scores[0], scores[1]));
  EXPECT_FALSE(same_bits(scores[0], scores[2]));
  EXPECT_FALSE(same_bits(scores[0], scores[3]));
  EXPECT_FALSE(same_bits(scores[2], scores[3]));
  // A positive factor before or after the relu of one head is the same product; only the names differ without weights.
  EXPECT_TRUE(same_bits(scores[1], scores[2]));
}

}  // namespace
}  // namespace seriatim
