// Every implementation of the score against score_ref, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/half.hpp"
#include "score/score_kernels.hpp"
#include "score/score_ref.hpp"
#include "seriatim/score.hpp"

namespace seriatim {
namespace {

constexpr std::array kDTypes{
#define SERIATIM_DTYPE(name, dtype) dtype,
    SERIATIM_SCORE_KERNELS(SERIATIM_DTYPE)
#undef SERIATIM_DTYPE
};

using Random = std::mt19937;

std::int64_t pick(Random& random, std::initializer_list<std::int64_t> from) {
  return from.begin()[std::uniform_int_distribution<std::size_t>(0, from.size() - 1)(random)];
}

// Mostly ordinary numbers; `harsh` adds zeros of both signs, subnormals, numbers whose products overflow, and no
// numbers.
float value(Random& random, bool harsh) {
  const float normal = std::normal_distribution<float>()(random);
  if (!harsh) return normal;
  switch (std::uniform_int_distribution<int>(0, 19)(random)) {
    case 0:
      return 0.0f;
    case 1:
      return -0.0f;
    case 2:
      return std::copysign(std::numeric_limits<float>::denorm_min() * 77.0f, normal);
    case 3:
      return normal * 1e-30f;
    case 4:
      return normal * 1e30f;
    case 5:
      return std::uniform_int_distribution<int>(0, 60)(random) == 0 ? std::numeric_limits<float>::infinity() : normal;
    case 6:
      return std::uniform_int_distribution<int>(0, 60)(random) == 0 ? std::numeric_limits<float>::quiet_NaN() : normal;
    default:
      return normal;
  }
}

// A problem with all of its memory. Panels lie in pages of their own; what the view does not hold is NaN.
struct Problem {
  Geometry geometry = *Geometry::admit({});
  std::int64_t count = 1;
  std::vector<std::byte> query_bytes;
  std::vector<float> weights;
  std::vector<AlignedBuffer<std::byte>> memory;
  std::vector<const std::byte*> pages;
  PooledKeys pooled;

  Problem(GeometryOptions options, std::int64_t queries, std::int64_t groups, std::int64_t page_groups,
          std::int64_t first_slot, bool weighted, bool harsh, Random& random)
      : geometry(*Geometry::admit(std::move(options))), count(queries) {
    const DType dtype = geometry.index_dtype();
    const std::int64_t bytes = dtype_bytes(dtype);
    const std::int64_t dim = geometry.index_dim();
    query_bytes.resize(static_cast<std::size_t>(count * geometry.index_heads() * dim * bytes));
    for (std::size_t i = 0; i < query_bytes.size(); i += static_cast<std::size_t>(bytes))
      store_element(&query_bytes[i], dtype, value(random, harsh));
    if (weighted) {
      for (std::int64_t i = 0; i < count * geometry.index_heads(); ++i) weights.push_back(value(random, harsh));
    }
    for (std::int64_t slot = 0; slot < first_slot + groups; slot += page_groups) {
      memory.emplace_back(page_groups * dim * bytes);
      for (std::int64_t i = 0; i < page_groups * dim; ++i)
        store_element(memory.back().data() + i * bytes, dtype, std::numeric_limits<float>::quiet_NaN());
      pages.push_back(memory.back().data());
    }
    pooled.pages = pages.data();
    pooled.page_groups = page_groups;
    pooled.first_slot = first_slot;
    pooled.groups = groups;
    pooled.dim = dim;
    pooled.dtype = dtype;
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t i = 0; i < dim; ++i) {
        store_element(const_cast<std::byte*>(pooled.group(g)) + i * PooledKeys::kPanelGroups * bytes, dtype,
                      value(random, harsh));
      }
    }
  }

  ConstTensor queries() const {
    return dense_view(query_bytes.data(), geometry.index_dtype(),
                      {count, geometry.index_heads(), geometry.index_dim()});
  }
  ConstTensor head_weights() const {
    return weights.empty() ? ConstTensor{} : dense_view(weights.data(), DType::kF32, {count, geometry.index_heads()});
  }

  std::vector<float> reference() const {
    std::vector<float> scores(static_cast<std::size_t>(count * pooled.groups));
    for (std::int64_t q = 0; q < count; ++q) {
      score_ref(geometry, row_of(queries(), q), weights.empty() ? ConstTensor{} : row_of(head_weights(), q), pooled,
                std::span(scores).subspan(static_cast<std::size_t>(q * pooled.groups),
                                          static_cast<std::size_t>(pooled.groups)));
    }
    return scores;
  }

  // All lanes of panels first_panel .. first_panel + panels - 1.
  std::vector<float> panels(const ScoreKernels& kernels, std::int64_t first_panel, std::int64_t panel_count) const {
    std::vector<float> packed(static_cast<std::size_t>(count * geometry.index_heads() * geometry.index_dim()));
    kernels.pack(queries(), packed.data());
    std::vector<float> packed_weights(weights.size());
    if (!weights.empty()) pack_head_weights(head_weights(), packed_weights.data());
    const AlignedBuffer<std::byte> edge(score_edge_bytes(geometry));
    const std::int64_t stride = panel_count * Panels::kLanes + 3;
    std::vector<float> scores(static_cast<std::size_t>(count * stride), kUntouched);
    ScoreBlock block;
    block.geometry = &geometry;
    block.count = count;
    block.queries = packed.data();
    block.head_weights = weights.empty() ? nullptr : packed_weights.data();
    block.pooled = &pooled;
    block.first_panel = first_panel;
    block.panels = panel_count;
    block.edge = edge.data();
    block.scores = scores.data();
    block.stride = stride;
    kernels.score(block);
    for (std::int64_t q = 0; q < count; ++q) {
      for (std::int64_t i = panel_count * Panels::kLanes; i < stride; ++i) {
        EXPECT_EQ(scores[static_cast<std::size_t>(q * stride + i)], kUntouched) << "a lane past the panels was written";
      }
    }
    std::vector<float> tight;
    for (std::int64_t q = 0; q < count; ++q) {
      tight.insert(tight.end(), scores.begin() + q * stride,
                   scores.begin() + q * stride + panel_count * Panels::kLanes);
    }
    return tight;
  }

  static constexpr float kUntouched = -12345.0f;
};

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

// Scores by `kernels`, in two runs of panels, against the definition. Gives how many were compared.
std::int64_t compare(const Problem& problem, const ScoreKernels& kernels, std::int64_t split) {
  const std::vector<float> expected = problem.reference();
  const Panels panels(problem.pooled);
  std::int64_t compared = 0;
  for (const auto& [first, end] : {std::pair(std::int64_t{0}, split), std::pair(split, panels.count())}) {
    const std::vector<float> scores = problem.panels(kernels, first, end - first);
    for (std::int64_t q = 0; q < problem.count; ++q) {
      for (std::int64_t lane = 0; lane < (end - first) * Panels::kLanes; ++lane) {
        const std::int64_t group = first * Panels::kLanes + lane - panels.lead();
        if (group < 0 || group >= problem.pooled.groups) continue;
        const float got = scores[static_cast<std::size_t>(q * (end - first) * Panels::kLanes + lane)];
        const float want = expected[static_cast<std::size_t>(q * problem.pooled.groups + group)];
        ++compared;
        if (!same(got, want)) {
          ADD_FAILURE() << kernels.name << ": query " << q << " group " << group << " is " << got << ", not " << want;
          return compared;
        }
      }
    }
  }
  return compared;
}

class ScoreAgreement : public testing::TestWithParam<Kernels> {
 protected:
  const ScoreKernels& kernels() const { return score_kernels(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, ScoreAgreement, testing::ValuesIn(Kernels::available()),
                         [](const testing::TestParamInfo<Kernels>& kernels) { return kernels.param.name(); });

TEST_P(ScoreAgreement, TheForcedKernelsAreTheOnesThatRun) {
  std::string name = kernels().name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  EXPECT_EQ(name, GetParam().name());
  for (const Kernels& other : Kernels::available()) {
    EXPECT_EQ(&score_kernels(other) == &kernels(), other == GetParam());
  }
}

TEST_P(ScoreAgreement, EveryOptionAndOddSizeGivesTheBitsOfTheReference) {
  Random random(20240817);
  std::int64_t compared = 0;
  constexpr int kProblems = 500;
  for (int i = 0; i < kProblems && !HasFailure(); ++i) {
    GeometryOptions options;
    options.index_heads = pick(random, {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 64});
    options.index_dim = pick(random, {1, 2, 3, 4, 5, 7, 8, 31, 64, 66, 128});
    options.index_rotary_dim = 0;
    options.index_dtype = kDTypes[static_cast<std::size_t>(i) % kDTypes.size()];
    options.relu = pick(random, {0, 1}) == 1;
    options.scale_at = static_cast<ScaleAt>(pick(random, {0, 1, 2, 3}));
    const std::int64_t page_groups = pick(random, {16, 32, 80, 256});
    const std::int64_t first_slot = std::uniform_int_distribution<std::int64_t>(0, page_groups - 1)(random);
    const std::int64_t groups = std::uniform_int_distribution<std::int64_t>(1, 200)(random);
    const Problem problem(options, pick(random, {1, 2, 3, 5, 8}), groups, page_groups, first_slot,
                          pick(random, {0, 1}) == 1, pick(random, {0, 1}) == 1, random);
    compared += compare(problem, kernels(),
                        std::uniform_int_distribution<std::int64_t>(0, Panels(problem.pooled).count())(random));
  }
  EXPECT_GE(compared, kProblems * 50);
}

TEST_P(ScoreAgreement, EveryNumberOfGroupsAndFirstSlot) {
  Random random(7);
  GeometryOptions options;
  options.index_dim = 9;
  options.index_rotary_dim = 0;
  options.index_heads = 3;
  std::int64_t compared = 0;
  for (std::int64_t first_slot = 0; first_slot < 32 && !HasFailure(); ++first_slot) {
    for (std::int64_t groups = 1; groups <= 130; groups += 1 + groups / 34) {
      options.index_dtype = kDTypes[static_cast<std::size_t>(groups) % kDTypes.size()];
      const Problem problem(options, 2, groups, 32, first_slot, false, false, random);
      compared += compare(problem, kernels(), 1);
    }
  }
  EXPECT_GT(compared, 32 * 100);
}

TEST_P(ScoreAgreement, LanesPastTheLastGroupAreReadAsZero) {
  Random random(3);
  for (const DType dtype : kDTypes) {
    GeometryOptions options;
    options.index_dtype = dtype;
    const Problem problem(options, 2, 21, 64, 0, false, false, random);
    const std::vector<float> scores = problem.panels(kernels(), 0, 2);
    std::int64_t past = 0;
    for (std::int64_t q = 0; q < 2; ++q) {
      for (std::size_t lane = 21; lane < 32; ++lane, ++past) {
        const float score = scores[static_cast<std::size_t>(q) * 32 + lane];
        // They are NaN in memory: a score of one would be NaN. The reference leaves such lanes alone.
        EXPECT_EQ(score, GetParam().is_reference() ? Problem::kUntouched : 0.0f)
            << dtype_name(dtype) << " lane " << lane;
      }
    }
    EXPECT_EQ(past, 22);
  }
}

TEST_P(ScoreAgreement, OneFlippedBitOfAKeyChangesItsScoreAndNoOther) {
  Random random(5);
  Problem problem({}, 1, 50, 64, 3, false, false, random);
  const std::vector<float> before = problem.panels(kernels(), 0, 4);
  // The leading bit of the fraction: far above the rounding of the chain.
  const_cast<std::byte*>(problem.pooled.group(20))[2] ^= std::byte{0x40};
  const std::vector<float> after = problem.panels(kernels(), 0, 4);
  std::int64_t changed = 0;
  for (std::int64_t lane = 3; lane < 53; ++lane) {
    changed += same(before[static_cast<std::size_t>(lane)], after[static_cast<std::size_t>(lane)]) ? 0 : 1;
  }
  EXPECT_EQ(changed, 1);
  EXPECT_FALSE(same(before[23], after[23]));
}

TEST_P(ScoreAgreement, TheLargestMagnitudeIsThatOfTheDefinition) {
  Random random(11);
  for (const DType dtype : kDTypes) {
    for (const std::int64_t groups : {1, 15, 16, 17, 100}) {
      GeometryOptions options;
      options.index_dim = 5;
      options.index_rotary_dim = 0;
      options.index_dtype = dtype;
      const Problem problem(options, 1, groups, 64, 0, false, false, random);
      float expected = 0.0f;
      for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t i = 0; i < 5; ++i)
          expected =
              std::max(expected, std::fabs(load_element(problem.pooled.group(g) + row_bytes(dtype, i * 16), dtype)));
      }
      ASSERT_GT(expected, 0.0f);
      const AlignedBuffer<std::byte> edge(score_edge_bytes(problem.geometry));
      EXPECT_EQ(
          max_abs_of_panels(row_kernels(GetParam()), problem.pooled, 0, Panels(problem.pooled).count(), edge.data()),
          expected);
      store_element(const_cast<std::byte*>(problem.pooled.group(groups - 1)), dtype,
                    std::numeric_limits<float>::quiet_NaN());
      EXPECT_TRUE(std::isnan(
          max_abs_of_panels(row_kernels(GetParam()), problem.pooled, 0, Panels(problem.pooled).count(), edge.data())));
    }
  }
}

TEST(ScoreGroups, GivesTheBitsOfTheReferenceForEveryFirstSlotAndStride) {
  Random random(13);
  std::int64_t compared = 0;
  for (std::int64_t first_slot = 0; first_slot < 20; ++first_slot) {
    for (const std::int64_t groups : {1, 5, 16, 31, 33, 90}) {
      GeometryOptions options;
      options.index_dtype = kDTypes[static_cast<std::size_t>(first_slot) % kDTypes.size()];
      const Problem problem(options, 1, groups, 48, first_slot, first_slot % 2 == 1, false, random);
      std::vector<float> scores(static_cast<std::size_t>(groups));
      const ConstTensor weights = problem.weights.empty() ? ConstTensor{} : row_of(problem.head_weights(), 0);
      ASSERT_TRUE(score_groups(problem.geometry, row_of(problem.queries(), 0), weights, problem.pooled, scores).ok());
      const std::vector<float> expected = problem.reference();
      for (std::size_t g = 0; g < scores.size(); ++g, ++compared)
        ASSERT_TRUE(same(scores[g], expected[g])) << first_slot << " " << groups << " " << g;
    }
  }
  EXPECT_EQ(compared, 20 * 176);
}

}  // namespace
}  // namespace seriatim
