#include "seriatim/score.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/half.hpp"
#include "support/rows.hpp"

namespace seriatim {
namespace {

using test::bits_of;
using test::expect_refused;
using test::kInfinity;
using test::kNaN;

constexpr std::int64_t kPanel = PooledKeys::kPanelGroups;

// Queries, weights and keys of a scoring problem as plain f32 values, already rounded to the dtype.
struct Problem {
  Geometry geometry;
  std::vector<std::vector<float>> query;  // [heads][dim]
  std::vector<float> weights;             // [heads] or empty
  std::vector<std::vector<float>> keys;   // [groups][dim]
};

struct Options {
  DType dtype = DType::kF32;
  std::int64_t heads = 4;
  std::int64_t dim = 20;
  bool relu = true;
  ScaleAt scale_at = ScaleAt::kAfterSum;
};

Geometry geometry_of(const Options& o) {
  GeometryOptions options;
  options.index_heads = o.heads;
  options.index_dim = o.dim;
  options.index_rotary_dim = 0;
  options.index_dtype = o.dtype;
  options.relu = o.relu;
  options.scale_at = o.scale_at;
  auto geometry = Geometry::admit(options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().message();
  return geometry.value();
}

Problem random_problem(const Options& o, std::int64_t groups, bool weighted, std::uint64_t seed) {
  test::Random random(seed);
  Problem problem{geometry_of(o), {}, {}, {}};
  const auto vector = [&] {
    std::vector<float> values;
    for (std::int64_t i = 0; i < o.dim; ++i) values.push_back(round_to(o.dtype, random.uniform()));
    return values;
  };
  for (std::int64_t h = 0; h < o.heads; ++h) problem.query.push_back(vector());
  for (std::int64_t h = 0; weighted && h < o.heads; ++h) problem.weights.push_back(random.uniform());
  for (std::int64_t g = 0; g < groups; ++g) problem.keys.push_back(vector());
  return problem;
}

// Where pooled keys lie: pages of `page_groups` with `first_slot` of the first page skipped. All else is NaN.
struct Store {
  std::int64_t page_groups = kPanel;
  std::int64_t first_slot = 0;
  std::int64_t offset_bytes = 0;
};

class Placed {
 public:
  Placed(const Problem& problem, const Store& store) {
    const DType dtype = problem.geometry.index_dtype();
    const std::int64_t dim = problem.geometry.index_dim();
    const std::int64_t bytes = dtype_bytes(dtype);
    const auto groups = static_cast<std::int64_t>(problem.keys.size());
    const std::int64_t pages = (store.first_slot + groups + store.page_groups - 1) / store.page_groups;
    const auto page_bytes = static_cast<std::size_t>(store.offset_bytes + store.page_groups * dim * bytes);
    for (std::int64_t page = 0; page < pages; ++page) {
      memory_.emplace_back(page_bytes);
      for (std::size_t at = 0; at < page_bytes; at += static_cast<std::size_t>(bytes))
        store_element(&memory_.back()[at], dtype, kNaN);
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t slot = store.first_slot + g;
      const std::int64_t in_page = slot % store.page_groups;
      for (std::int64_t i = 0; i < dim; ++i) {
        const std::int64_t element = (in_page / kPanel * dim + i) * kPanel + in_page % kPanel;
        std::byte* page = memory_[static_cast<std::size_t>(slot / store.page_groups)].data();
        store_element(page + store.offset_bytes + element * bytes, dtype,
                      problem.keys[static_cast<std::size_t>(g)][static_cast<std::size_t>(i)]);
      }
    }
    for (const auto& page : memory_) pages_.push_back(page.data());
    keys.pages = pages_.data();
    keys.page_groups = store.page_groups;
    keys.offset_bytes = store.offset_bytes;
    keys.first_slot = store.first_slot;
    keys.groups = groups;
    keys.dim = dim;
    keys.dtype = dtype;
  }
  PooledKeys keys;

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::vector<const std::byte*> pages_;
};

ConstTensor f32_view(const std::vector<float>& values) {
  if (values.empty()) return {};
  return dense_view(static_cast<const void*>(values.data()), DType::kF32, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> score(const Problem& problem, const Store& store = {}) {
  const DType dtype = problem.geometry.index_dtype();
  const std::int64_t dim = problem.geometry.index_dim();
  std::vector<std::byte> query(static_cast<std::size_t>(problem.geometry.index_heads() * dim * dtype_bytes(dtype)));
  for (std::size_t h = 0, at = 0; h < problem.query.size(); ++h) {
    for (const float value : problem.query[h]) {
      store_element(&query[at], dtype, value);
      at += static_cast<std::size_t>(dtype_bytes(dtype));
    }
  }
  const Placed placed(problem, store);
  std::vector<float> scores(problem.keys.size(), -12345.0f);
  const Status status =
      score_groups(problem.geometry,
                   dense_view(static_cast<const void*>(query.data()), dtype, {problem.geometry.index_heads(), dim}),
                   f32_view(problem.weights), placed.keys, scores);
  EXPECT_TRUE(status.ok()) << status.message();
  return scores;
}

// The score of one group in double, and how far f32 chains may lie from it.
struct Exact {
  double score = 0.0;
  double bound = 0.0;
};

Exact exact_score(const Problem& problem, const std::vector<float>& key) {
  const Geometry& geometry = problem.geometry;
  const double root = std::sqrt(static_cast<double>(geometry.index_dim()));
  const double scale = geometry.scale_at() == ScaleAt::kNowhere ? 1.0 : 1.0 / root;
  Exact exact;
  double magnitude = 0.0;
  for (std::size_t h = 0; h < problem.query.size(); ++h) {
    double dot = 0.0;
    double absolute = 0.0;
    for (std::size_t i = 0; i < key.size(); ++i) {
      const double product = static_cast<double>(problem.query[h][i]) * static_cast<double>(key[i]);
      dot += product;
      absolute += std::fabs(product);
    }
    if (geometry.relu() && dot < 0.0) dot = 0.0;
    const double weight = problem.weights.empty() ? 1.0 : static_cast<double>(problem.weights[h]);
    exact.score += weight * dot * scale;
    magnitude += std::fabs(weight) * absolute * scale;
  }
  // One rounding for each step of the chains and three for the scale, each at most 2^-24 of what was summed so far.
  exact.bound = magnitude * static_cast<double>(key.size() + problem.query.size() + 3) * 0x1p-24;
  return exact;
}

// The same chains, each step one libm call, for the bits.
float chained_score(const Problem& problem, const std::vector<float>& key) {
  const Geometry& geometry = problem.geometry;
  const auto dim = static_cast<double>(geometry.index_dim());
  const auto inverse = static_cast<float>(1.0 / std::sqrt(dim));
  float sum = 0.0f;
  for (std::size_t h = 0; h < problem.query.size(); ++h) {
    float dot = 0.0f;
    for (std::size_t i = 0; i < key.size(); ++i) dot = std::fma(problem.query[h][i], key[i], dot);
    if (geometry.scale_at() == ScaleAt::kBeforeRelu) dot *= inverse;
    if (geometry.relu()) dot = std::max(dot, 0.0f);
    if (geometry.scale_at() == ScaleAt::kAfterRelu) dot *= inverse;
    sum = std::fma(problem.weights.empty() ? 1.0f : problem.weights[h], dot, sum);
  }
  return geometry.scale_at() == ScaleAt::kAfterSum ? sum / static_cast<float>(std::sqrt(dim)) : sum;
}

TEST(Score, EveryOptionIsTheChainBitForBitAndNearTheExactScore) {
  std::int64_t compared = 0;
  std::int64_t zeros = 0;
  std::int64_t negative = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const ScaleAt scale_at : {ScaleAt::kAfterSum, ScaleAt::kBeforeRelu, ScaleAt::kAfterRelu, ScaleAt::kNowhere}) {
      for (const bool relu : {true, false}) {
        for (const bool weighted : {false, true}) {
          for (const std::int64_t dim : {1, 20, 128}) {
            for (const std::int64_t heads : {1, 3}) {
              const Problem problem = random_problem({dtype, heads, dim, relu, scale_at}, 35, weighted, 7);
              const auto scores = score(problem);
              for (std::size_t g = 0; g < 35; ++g) {
                const Exact exact = exact_score(problem, problem.keys[g]);
                ASSERT_EQ(bits_of(scores[g]), bits_of(chained_score(problem, problem.keys[g]))) << "group " << g;
                ASSERT_NEAR(static_cast<double>(scores[g]), exact.score, exact.bound) << "group " << g;
                ++compared;
                zeros += scores[g] == 0.0f ? 1 : 0;
                negative += scores[g] < 0.0f ? 1 : 0;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 3 * 4 * 2 * 2 * 3 * 2 * 35);
  EXPECT_GT(zeros, 1000);
  EXPECT_GT(negative, 1000);
}

// Each place of the scale is its own option because it gives other bits.
TEST(Score, EveryPlaceOfTheScaleGivesOtherBits) {
  std::vector<std::vector<float>> scores;
  for (const ScaleAt scale_at : {ScaleAt::kAfterSum, ScaleAt::kAfterRelu, ScaleAt::kNowhere}) {
    scores.push_back(score(random_problem({DType::kF32, 4, 20, true, scale_at}, 200, false, 8)));
  }
  EXPECT_NE(scores[0], scores[1]);
  EXPECT_NE(scores[0], scores[2]);
  EXPECT_NE(scores[1], scores[2]);
}

// mlx-lm#531: the relu stood after the sum over heads, so that one head's negative dot ate another's positive one.
TEST(Score, ReluComesPerHeadAndThenTheSum) {
  Problem problem = random_problem({DType::kF32, 2, 4, true, ScaleAt::kAfterSum}, 3, false, 1);
  problem.query = {{1.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f, 0.0f}};
  problem.keys = {{6.0f, -100.0f, 0.0f, 0.0f}, {-3.0f, -5.0f, 9.0f, 9.0f}, {2.0f, 4.0f, -9.0f, 0.0f}};
  EXPECT_EQ(score(problem), (std::vector<float>{3.0f, 0.0f, 3.0f}));  // over the root of 4 dims
}

TEST(Score, HeadWeightsAreSignedAndMultiplyAfterTheRelu) {
  Problem problem = random_problem({DType::kF32, 2, 4, true, ScaleAt::kNowhere}, 2, false, 1);
  problem.query = {{1.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 1.0f, 0.0f, 0.0f}};
  problem.keys = {{4.0f, 8.0f, 0.0f, 0.0f}, {-4.0f, 8.0f, 0.0f, 0.0f}};
  problem.weights = {2.0f, -0.5f};
  EXPECT_EQ(score(problem), (std::vector<float>{4.0f, -4.0f})) << "0 is no floor";
  problem.geometry = geometry_of({DType::kF32, 2, 4, false, ScaleAt::kNowhere});
  EXPECT_EQ(score(problem), (std::vector<float>{4.0f, -12.0f})) << "without the relu";
}

TEST(Score, PagesOffsetsAndFirstSlotsDoNotShowInTheBits) {
  int compared = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const std::int64_t groups : {1, 15, 16, 17, 100}) {
      const Problem problem = random_problem({dtype, 3, 20, true, ScaleAt::kAfterSum}, groups, true, 9);
      const auto expected = score(problem, {128, 0, 0});
      for (const std::int64_t page_groups : {16, 32, 48}) {
        for (const std::int64_t first_slot : {0, 1, 13, 15}) {
          const auto scores = score(problem, {page_groups, first_slot, 192});
          for (std::size_t g = 0; g < scores.size(); ++g) ASSERT_EQ(bits_of(scores[g]), bits_of(expected[g])) << g;
          ++compared;
        }
      }
      ASSERT_EQ(score(problem, {48, 47, 64}), expected);
    }
  }
  EXPECT_EQ(compared, 3 * 5 * 12);
}

TEST(Score, AGroupsScoreDoesNotDependOnHowManyAreVisible) {
  Problem problem = random_problem({}, 50, false, 10);
  const auto all = score(problem);
  while (!problem.keys.empty()) {
    problem.keys.pop_back();
    const auto fewer = score(problem);
    ASSERT_TRUE(std::equal(fewer.begin(), fewer.end(), all.begin()));
  }
}

TEST(Score, NoGroupsGiveNoScores) {
  const Problem problem = random_problem({}, 0, false, 1);
  EXPECT_TRUE(score(problem).empty());
}

// Within one dot an overflow stays an infinity of its sign, whatever finite products follow.
TEST(Score, AnOverflowWithinAHeadShowsAsInfinity) {
  for (const bool relu : {true, false}) {
    Problem problem = random_problem({DType::kF32, 1, 2, relu, ScaleAt::kAfterSum}, 4, false, 1);
    const float huge = std::numeric_limits<float>::max();
    problem.query = {{huge, huge}};
    problem.keys = {{huge, 0.0f}, {-huge, huge}, {-huge, 0.0f}, {huge, -huge}};
    const auto scores = score(problem);
    EXPECT_EQ(scores[0], kInfinity);
    EXPECT_EQ(scores[1], relu ? 0.0f : -kInfinity);
    EXPECT_EQ(scores[2], relu ? 0.0f : -kInfinity);
    EXPECT_EQ(scores[3], kInfinity);
  }
}

TEST(Score, ANanPassesThroughTheReluAndTheSum) {
  for (const bool relu : {true, false}) {
    for (const ScaleAt scale_at : {ScaleAt::kAfterSum, ScaleAt::kBeforeRelu, ScaleAt::kAfterRelu, ScaleAt::kNowhere}) {
      Problem problem = random_problem({DType::kF32, 3, 4, relu, scale_at}, 3, false, 2);
      problem.keys[1][2] = kNaN;
      const auto scores = score(problem);
      EXPECT_FALSE(std::isnan(scores[0]));
      EXPECT_TRUE(std::isnan(scores[1]));
      EXPECT_FALSE(std::isnan(scores[2]));
      problem.keys[1][2] = 0.0f;
      problem.query[1] = {kInfinity, 0.0f, 0.0f, 0.0f};
      problem.keys[0][0] = 0.0f;  // infinity times zero, in one head of three
      EXPECT_TRUE(std::isnan(score(problem)[0]));
    }
  }
}

TEST(Score, WeightsOfOppositeSignOnOverflowedHeadsGiveNan) {
  Problem problem = random_problem({DType::kF32, 2, 1, true, ScaleAt::kNowhere}, 1, false, 1);
  problem.query = {{3e38f}, {3e38f}};
  problem.keys = {{3e38f}};
  problem.weights = {1.0f, -1.0f};
  EXPECT_TRUE(std::isnan(score(problem)[0]));
}

class ScoreRefuses : public ::testing::Test {
 protected:
  void refuse(std::string_view argument, std::string_view words, Code code = Code::kInvalidArgument) {
    expect_refused(score_groups(problem_.geometry, query_, weights_, keys_, std::span(scores_.values).first(entries_)),
                   code, argument, {}, words);
    EXPECT_TRUE(scores_.untouched());
  }

  Problem problem_ = random_problem({}, 18, false, 1);
  Placed placed_{problem_, {}};
  std::vector<float> query_values_ = std::vector<float>(80, 1.0f);
  std::vector<float> weight_values_ = std::vector<float>(4, 1.0f);
  ConstTensor query_ = dense_view(static_cast<const void*>(query_values_.data()), DType::kF32, {4, 20});
  ConstTensor weights_;
  PooledKeys keys_ = placed_.keys;
  test::Witness<float> scores_{19, -7.0f};
  std::size_t entries_ = 18;
};

TEST_F(ScoreRefuses, QueriesThatDoNotFit) {
  query_.dtype = DType::kBf16;
  refuse("index_queries", "dtype bf16 where f32");
  query_ = dense_view(static_cast<const void*>(query_values_.data()), DType::kF32, {4, 19});
  refuse("index_queries", "axis 1 has extent 19 where 20");
  query_ = dense_view(static_cast<const void*>(query_values_.data()), DType::kF32, {1, 4, 20});
  refuse("index_queries", "rank 3 where 2");
  query_ = dense_view(static_cast<const void*>(query_values_.data()), DType::kF32, {4, 20});
  query_.stride_bytes[1] = -4;
  refuse("index_queries", "axis 1 has a stride of -4");
}

TEST_F(ScoreRefuses, WeightsThatDoNotFit) {
  weights_ = dense_view(static_cast<const void*>(weight_values_.data()), DType::kF32, {3});
  refuse("index_head_weights", "axis 0 has extent 3 where 4");
  weights_ = dense_view(static_cast<const void*>(weight_values_.data()), DType::kF16, {4});
  refuse("index_head_weights", "dtype f16 where f32");
}

TEST_F(ScoreRefuses, PooledKeysOfAnotherShape) {
  keys_.dim = 19;
  refuse("pooled", "18 groups of 19 x f32 where 20 x f32 is needed");
  keys_ = placed_.keys;
  keys_.dtype = DType::kF16;
  refuse("pooled", "18 groups of 20 x f16 where 20 x f32 is needed");
  keys_ = placed_.keys;
  keys_.groups = -1;
  refuse("pooled", "-1 groups");
}

TEST_F(ScoreRefuses, PagesThatHoldNoWholePanels) {
  for (const std::int64_t page_groups : {-16, 0, 8, 17}) {
    keys_.page_groups = page_groups;
    refuse("pooled", "panels");
  }
  keys_ = placed_.keys;
  for (const std::int64_t slot : {-1, 16, 100}) {
    keys_.first_slot = slot;
    refuse("pooled", "panels");
  }
  keys_ = placed_.keys;
  keys_.pages = nullptr;
  refuse("pooled", "panels");
}

TEST_F(ScoreRefuses, RoomForAnotherNumberOfScores) {
  for (const std::size_t entries : {0u, 17u, 19u}) {
    entries_ = entries;
    refuse("scores", std::to_string(entries) + " entries for 18 groups");
  }
}

}  // namespace
}  // namespace seriatim
