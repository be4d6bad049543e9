// The interval itself: every group's canonical score lies within its bound of the approximate one, for keys and queries
// that were made to leave it; and the set that comes of it is the canonical one.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "screen/gain.hpp"
#include "support/screen_trial.hpp"

namespace seriatim {
namespace {

using Floats = std::vector<float>;

std::vector<const ScreenKernels*> all_screens() {
  std::vector<const ScreenKernels*> all{&screen_portable()};
  if (screen_native() != nullptr) all.push_back(screen_native());
  return all;
}

struct Attack {
  std::string name;
  Floats keys, query, weights;
};

constexpr std::int64_t kHeads = 5;
constexpr std::int64_t kDim = 67;  // odd, and no multiple of anything
constexpr std::int64_t kGroups = 203;
constexpr std::int64_t kKeep = 23;

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}
  float normal() { return normal_(random_); }
  float sign() { return normal() < 0.0f ? -1.0f : 1.0f; }
  Floats normals(std::int64_t count, float scale = 1.0f) {
    Floats all(static_cast<std::size_t>(count));
    for (float& x : all) x = normal() * scale;
    return all;
  }
  Floats keys(float scale = 1.0f) { return normals(kGroups * kDim, scale); }
  Floats query(float scale = 1.0f) { return normals(kHeads * kDim, scale); }
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

float& at(Floats& rows, std::int64_t row, std::int64_t i) { return rows[static_cast<std::size_t>(row * kDim + i)]; }

// What rounding to bf16 takes off each key points along every head of the query, which all are on.
Attack turned_along_the_query(Maker& make) {
  Attack a{"turned along the query", make.keys(), make.query(), {}};
  for (std::int64_t i = 0; i < kDim; ++i) {
    const float sign = make.sign();
    for (std::int64_t h = 0; h < kHeads; ++h) at(a.query, h, i) = sign;
    for (std::int64_t g = 0; g < kGroups; ++g) {
      // The magnitude is 1 and a little less than half a place of bf16 towards the query, or away from it.
      const float away = g % 2 == 0 ? 1.0f : -1.0f;
      at(a.keys, g, i) = sign * (1.0f + away * 0x1p-9f);
    }
  }
  return a;
}

std::vector<Attack> attacks(unsigned seed) {
  Maker make(seed);
  std::vector<Attack> all;
  all.push_back(turned_along_the_query(make));
  all.push_back({"normal", make.keys(), make.query(), {}});
  all.push_back({"signed weights", make.keys(), make.query(), make.normals(kHeads)});
  {
    Attack a{"all heads on", make.keys(), make.query(), {}};
    for (float& x : a.keys) x = std::fabs(x);
    for (float& x : a.query) x = std::fabs(x);
    all.push_back(a);
  }
  {
    Attack a{"one outlier dim", make.keys(), make.query(), {}};
    for (std::int64_t g = 0; g < kGroups; ++g) at(a.keys, g, 17) *= 1000.0f;
    all.push_back(a);
    for (std::int64_t h = 0; h < kHeads; ++h) at(a.query, h, 17) *= -1000.0f;
    a.name = "one outlier dim of both";
    all.push_back(a);
  }
  {
    Attack a{"huge range", make.keys(), make.query(), make.normals(kHeads)};
    for (float& x : a.keys) x = std::ldexp(x, make.below(40) - 30);
    for (float& x : a.query) x = std::ldexp(x, make.below(40) - 30);
    all.push_back(a);
  }
  all.push_back({"subnormal keys", make.keys(0x1p-127f), make.query(0x1p+40f), {}});
  all.push_back({"subnormal queries", make.keys(0x1p+40f), make.query(0x1p-127f), make.normals(kHeads, 0x1p+30f)});
  all.push_back({"subnormal products", make.keys(0x1p-66f), make.query(0x1p-66f), {}});
  all.push_back({"tiny weights", make.keys(), make.query(), make.normals(kHeads, 0x1p-140f)});
  {
    Attack a{"one term, and many of half its last place", make.keys(0x1p-12f), make.query(0x1p-12f), {}};
    for (float& x : a.keys) x = std::copysign(0x1.03p-12f, x);
    for (float& x : a.query) x = 0x1.03p-12f;
    for (std::int64_t g = 0; g < kGroups; ++g) at(a.keys, g, 0) = 1.0f;
    for (std::int64_t h = 0; h < kHeads; ++h) at(a.query, h, 0) = 1.0f;
    all.push_back(a);
  }
  {
    Attack a{"what cancels", make.keys(), make.query(), {}};
    for (std::int64_t i = 0; i + 1 < kDim; i += 2) {
      for (std::int64_t g = 0; g < kGroups; ++g) at(a.keys, g, i + 1) = at(a.keys, g, i) * 1.01f;
      for (std::int64_t h = 0; h < kHeads; ++h) at(a.query, h, i + 1) = -at(a.query, h, i);
    }
    all.push_back(a);
  }
  {
    Attack a{"equal keys", make.keys(), make.query(), {}};
    for (std::int64_t g = 0; g < kGroups; ++g) {
      for (std::int64_t i = 0; i < kDim; ++i) at(a.keys, g, i) = at(a.keys, 0, i);
    }
    all.push_back(a);
  }
  {
    Attack a{"ties at the cut", make.keys(), make.query(), {}};
    for (std::int64_t g = 0; g < kGroups; ++g) {
      const std::int64_t like = g % (2 * kKeep);
      for (std::int64_t i = 0; i < kDim; ++i) at(a.keys, g, i) = at(a.keys, like, i);
    }
    all.push_back(a);
  }
  {
    Attack a{"scores of exactly 0", make.keys(), make.query(), {}};
    for (float& x : a.keys) x = std::fabs(x);
    for (float& x : a.query) x = -std::fabs(x);
    all.push_back(a);
  }
  {
    Attack a{"a key of length 0", make.keys(), make.query(), {}};
    for (std::int64_t g = 0; g < kGroups; g += 3) {
      for (std::int64_t i = 0; i < kDim; ++i) at(a.keys, g, i) = 0.0f;
    }
    all.push_back(a);
  }
  return all;
}

// Calls each(trial, name) for every attack, dtype, place of the scale and kernel.
template <class Each>
int for_all(unsigned seed, const Each& each) {
  int trials = 0;
  for (const DType dtype : {DType::kBf16, DType::kF32, DType::kF16}) {
    for (const Attack& attack : attacks(seed)) {
      for (int option = 0; option < 5; ++option) {
        const Geometry geometry = screen_geometry(kHeads, kDim, dtype, option != 4, static_cast<ScaleAt>(option % 4));
        ScreenTrial trial(geometry, attack.keys, attack.query, attack.weights, (trials * 5) % 16);
        for (const ScreenKernels* kernels : all_screens()) {
          trial.screen(*kernels);
          each(trial, attack.name + ", " + std::string(dtype_name(dtype)) + ", option " + std::to_string(option) +
                          ", " + kernels->name);
          ++trials;
        }
      }
    }
  }
  return trials;
}

TEST(Screen, EveryCanonicalScoreLiesWithinTheBoundOfTheApproximateOne) {
  int held = 0;
  const int trials = for_all(1, [&](const ScreenTrial& trial, const std::string& name) {
    if (!trial.holds()) return;
    ++held;
    EXPECT_LE(trial.tightness(), 1.0) << name;
  });
  EXPECT_GT(held, trials * 8 / 10);
}

TEST(Screen, ATenthOfTheBoundWouldNotHold) {
  for (const ScreenKernels* kernels : all_screens()) {
    Maker make(2);
    const Attack attack = turned_along_the_query(make);
    const Geometry geometry = screen_geometry(kHeads, kDim, DType::kF32);
    ScreenTrial trial(geometry, attack.keys, attack.query, attack.weights);
    trial.screen(*kernels);
    ASSERT_TRUE(trial.holds());
    EXPECT_GT(trial.tightness(), 0.9) << kernels->name;
    EXPECT_LE(trial.tightness(), 1.0) << kernels->name;
  }
}

// bf16 keys are multiplied as they are: what is left is roundings, and what the instruction takes for zero.
TEST(Screen, ATenthOfTheBoundOfBf16KeysWouldNotHoldEither) {
  if (screen_native() == nullptr) GTEST_SKIP() << "no instruction for bf16";
  const Geometry geometry = screen_geometry(kHeads, kDim, DType::kBf16);
  Floats keys(static_cast<std::size_t>(kGroups * kDim), 0x1p+40f);
  Floats query(static_cast<std::size_t>(kHeads * kDim), 0x1.f8p-127f);
  ScreenTrial trial(geometry, keys, query, {});
  trial.screen(*screen_native());
  ASSERT_TRUE(trial.holds());
  EXPECT_GT(trial.tightness(), 0.3);
  EXPECT_LE(trial.tightness(), 1.0);
}

TEST(Screen, TheSetIsThatOfTheCanonicalScores) {
  int known = 0;
  for_all(3, [&](ScreenTrial& trial, const std::string& name) {
    if (!trial.holds()) return;
    for (const std::int64_t keep : {std::int64_t{1}, kKeep, kGroups - 1}) {
      const Kernels kernels = keep == 1 ? Kernels::reference() : Kernels::fastest();
      const auto picked = trial.picked(kernels, keep);
      ASSERT_TRUE(picked.has_value()) << name;
      ++known;
      EXPECT_EQ(*picked, trial.selected(keep)) << name << ", keep " << keep;
    }
  });
  EXPECT_GT(known, 1000);
}

TEST(Screen, ClearScoresNeedFewCanonicalOnes) {
  Maker make(6);
  const Geometry geometry = screen_geometry(kHeads, kDim, DType::kBf16);
  ScreenTrial trial(geometry, make.keys(), make.query(), make.normals(kHeads));
  for (const ScreenKernels* kernels : all_screens()) {
    trial.screen(*kernels);
    ASSERT_TRUE(trial.picked(Kernels::fastest(), kKeep).has_value());
    EXPECT_GE(trial.rescored, 1);
    EXPECT_LE(trial.rescored, 3) << kernels->name;
  }
}

TEST(Screen, TooManyOpenGroupsAreNotRescored) {
  Maker make(7);
  Floats keys = make.keys();
  for (std::int64_t g = 0; g < kGroups; ++g) {
    for (std::int64_t i = 0; i < kDim; ++i) at(keys, g, i) = at(keys, 0, i);
  }
  const Geometry geometry = screen_geometry(kHeads, kDim, DType::kBf16);
  ScreenTrial trial(geometry, keys, make.query(), {});
  for (const ScreenKernels* kernels : all_screens()) {
    trial.screen(*kernels);
    trial.most_rescored = kGroups - 1;
    EXPECT_FALSE(trial.picked(Kernels::fastest(), kKeep).has_value());
    trial.most_rescored = kGroups;
    EXPECT_TRUE(trial.picked(Kernels::fastest(), kKeep).has_value());
    EXPECT_EQ(trial.rescored, kGroups);
  }
}

TEST(Screen, NoBoundHoldsForWhatIsNotFiniteOrNearTheEndOfF32) {
  Maker make(8);
  const float inf = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::kBf16, DType::kF32, DType::kF16}) {
    const Geometry geometry = screen_geometry(kHeads, kDim, dtype);
    for (const float bad : {inf, -inf, std::nanf(""), 3e38f}) {
      for (const ScreenKernels* kernels : all_screens()) {
        Floats keys = make.keys();
        const Floats query = make.query();
        at(keys, 150, 33) = bad;
        ScreenTrial bad_key(geometry, keys, query, {});
        bad_key.screen(*kernels);
        EXPECT_FALSE(bad_key.holds()) << bad << " " << kernels->name;
        Floats queries = query;
        at(queries, 2, 66) = bad;
        ScreenTrial bad_query(geometry, make.keys(), queries, {});
        bad_query.screen(*kernels);
        EXPECT_FALSE(bad_query.holds()) << bad << " " << kernels->name;
        Floats weights = make.normals(kHeads);
        weights[1] = bad;
        ScreenTrial bad_weight(geometry, make.keys(), query, weights);
        bad_weight.screen(*kernels);
        EXPECT_FALSE(bad_weight.holds()) << bad << " " << kernels->name;
      }
    }
  }
}

TEST(Screen, TheInstructionIsUsedWhereTheProcessorHasItAndIsMeasured) {
  EXPECT_EQ(&screen_kernels(Kernels::reference()), &screen_portable());
  EXPECT_EQ(screen_gain(Kernels::reference()), 0.0);
  if (screen_native() == nullptr) {
    EXPECT_EQ(screen_gain(Kernels::fastest()), 0.0);
    GTEST_SKIP() << "no instruction for bf16";
  }
  EXPECT_EQ(&screen_kernels(Kernels::fastest()), screen_native());
  EXPECT_GT(screen_gain(Kernels::fastest()), 0.0);
  EXPECT_EQ(screen_gain(Kernels::fastest()), screen_gain(Kernels::fastest()));
}

}  // namespace
}  // namespace seriatim
