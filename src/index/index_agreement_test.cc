// Every implementation pools with the bits of the definition: odd shapes, all dtypes, all parts of a panel, values at
// the edges of f32, and any angle.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/sincos.hpp"
#include "index/pool_kernels.hpp"
#include "support/index.hpp"
#include "tables/sincos_table.hpp"

namespace seriatim {
namespace {

using test::Elements;
using test::Random;

class IndexAgreement : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernels kernels_ = *Kernels::named(GetParam());
};

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, IndexAgreement, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST_P(IndexAgreement, TheForcedImplementationIsTheOneThatRuns) {
  std::string name(pool_kernels(kernels_).name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  EXPECT_EQ(name, GetParam());
}

struct Shape {
  std::int64_t dim, rotary, tokens;
  bool axes = false;
};

constexpr Shape kShapes[] = {{128, 64, 4}, {128, 128, 4}, {24, 16, 4, true}, {16, 16, 1},      {33, 30, 3, true},
                             {7, 4, 2},    {1, 0, 1},     {40, 34, 7},       {130, 2, 5, true}};

// What a magnitude can do to the steps: overflow the sum, the square or f16; vanish in the square; be subnormal.
enum class Values { kPlain, kLarge, kSquaresOverflow, kSumsOverflow, kSquaresVanish, kSubnormal, kMixed };
constexpr Values kValues[] = {Values::kPlain,        Values::kLarge,         Values::kSquaresOverflow,
                              Values::kSumsOverflow, Values::kSquaresVanish, Values::kSubnormal,
                              Values::kMixed};

float draw(Values values, Random& random) {
  constexpr float kScales[] = {1.0f, 6e4f, 1e25f, 3.4e38f, 1e-24f, 1e-39f};
  const bool mixed = values == Values::kMixed;
  const float scale = kScales[mixed ? static_cast<std::size_t>(random.below(6)) : static_cast<std::size_t>(values)];
  const std::int64_t kind = random.below(10);
  return kind == 0 ? 0.0f : kind == 1 ? -0.0f : scale * random.uniform();
}

Elements random_keys(DType dtype, std::int64_t count, Values values, Random& random) {
  Elements keys(dtype, count);
  for (std::int64_t i = 0; i < count; ++i) {
    float value = draw(values, random);
    while (!std::isfinite(round_to(dtype, value))) value /= 65536.0f;
    keys.set(i, value);
  }
  return keys;
}

struct Pooled {
  Elements memory;
  float largest;
};

// Memory that the pooled keys are a part of; the rest must keep its bytes.
Pooled pool_into(const PoolKernels& kernels, PoolTask task, DType dtype, std::int64_t place, std::int64_t count) {
  Pooled result{Elements(dtype, count), 0.0f};
  std::vector<float> scratch(static_cast<std::size_t>(pool_scratch_floats(*task.geometry)), 77.0f);
  task.scratch = scratch.data();
  task.pooled = result.memory.data() + place * dtype_bytes(dtype);
  result.largest = kernels.pool(task);
  return result;
}

// Equal bits; of a NaN only that it is one.
void expect_same(const Pooled& got, const Pooled& want, std::int64_t count, std::string_view what) {
  std::int64_t differing = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = got.memory.get(i);
    const float w = want.memory.get(i);
    if (test::bits_of(g) != test::bits_of(w) && !(std::isnan(g) && std::isnan(w))) ++differing;
  }
  EXPECT_EQ(differing, 0) << what;
  EXPECT_EQ(test::bits_of(got.largest), test::bits_of(want.largest)) << what;
}

TEST_P(IndexAgreement, OnOddShapesOfEveryDtypeInRowsAndInLanesOfAPanel) {
  Random random(3);
  std::int64_t compared = 0;
  int not_finite = 0;
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
      GeometryOptions options = test::small_index(dtype);
      options.index_dim = shape.dim;
      options.index_rotary_dim = shape.rotary;
      options.group_tokens = options.budget_tokens = shape.tokens;
      for (std::int64_t i = 0; shape.axes && i < shape.rotary / 2; ++i)
        options.rope_axes.push_back(static_cast<std::uint8_t>(i % 3));
      const Geometry geometry = test::admitted(options);
      const auto weight = test::some_weights(shape.dim);
      for (const Values values : kValues) {
        for (const std::int64_t groups : {1, 2, 3, 5, 8, 13, 16}) {
          const std::int64_t tokens = groups % 2 == 0 ? 1 : shape.tokens;  // a vector that is its own mean
          const std::int64_t stride = shape.dim + groups % 3;
          const Elements raw = random_keys(dtype, groups * tokens * stride, values, random);
          std::vector<Coordinates> at;
          for (std::int64_t g = 0; g < groups; ++g) {
            const auto position = [&] {
              return static_cast<std::int32_t>(random.below(std::int64_t{1} << (g % 2 == 0 ? 31 : 12)));
            };
            at.push_back({position(), position(), position()});
          }
          if (groups > 2) at[1] = at[0];
          PoolTask task{&geometry,
                        weight.data(),
                        raw.view({1, 1}).data,
                        stride * dtype_bytes(dtype),
                        tokens,
                        groups,
                        at.data(),
                        nullptr,
                        nullptr,
                        0,
                        0};
          for (const bool lanes : {false, true}) {
            const std::int64_t lane = lanes ? random.below(16 - groups + 1) : 0;
            const std::int64_t count = 16 * shape.dim + 5;
            task.group_stride_bytes = row_bytes(dtype, lanes ? 1 : shape.dim);
            task.dim_stride_bytes = row_bytes(dtype, lanes ? 16 : 1);
            const Pooled got = pool_into(pool_kernels(kernels_), task, dtype, lane, count);
            const Pooled want = pool_into(pool_reference(), task, dtype, lane, count);
            ASSERT_FALSE(want.memory.untouched());
            expect_same(got, want, count,
                        std::string(dtype_name(dtype)) + ", " + std::to_string(shape.dim) + " dims, " +
                            std::to_string(groups) + " groups");
            compared += groups * shape.dim;
            not_finite += std::isfinite(want.largest) ? 0 : 1;
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 800'000);
  EXPECT_GT(not_finite, 50);
}

TEST_P(IndexAgreement, RowsOfHalvesAndKnownTurnsGiveTheBitsOfWidenedRows) {
  for (const DType dtype : {DType::kF16, DType::kBf16}) {
    for (const std::int64_t dim : {24, 40, 128}) {
      GeometryOptions options = test::small_index(DType::kF32);
      options.index_dim = dim;
      options.index_rotary_dim = 12;
      const Geometry geometry = test::admitted(options);
      const std::int64_t tokens = geometry.group_tokens(), groups = 13, elements = groups * tokens * dim;
      const auto weight = test::some_weights(dim);
      const Elements halves = Elements::random(dtype, elements, 8);
      Elements wide(DType::kF32, elements);
      for (std::int64_t i = 0; i < elements; ++i) wide.set(i, halves.get(i));
      const std::int64_t row = turn_floats(geometry);
      std::vector<Coordinates> at;
      std::vector<float> turns(static_cast<std::size_t>(groups * 2 * row));
      for (std::int64_t g = 0; g < groups; ++g) {
        const auto position = static_cast<std::int32_t>(g * g * 977);
        at.push_back({position, position, position});
        for (std::int64_t pair = 0; pair < 6; ++pair) {
          const float angle = static_cast<float>(position) * geometry.inv_freq()[static_cast<std::size_t>(pair)];
          turns[static_cast<std::size_t>(2 * g * row + pair)] = sincos32(angle).sin;
          turns[static_cast<std::size_t>((2 * g + 1) * row + pair)] = sincos32(angle).cos;
        }
      }
      PoolTask task;
      task.geometry = &geometry;
      task.norm_weight = weight.data();
      task.raw = wide.view({1, 1}).data;
      task.stride_bytes = row_bytes(DType::kF32, dim);
      task.tokens = tokens;
      task.groups = groups;
      task.at = at.data();
      task.group_stride_bytes = row_bytes(DType::kF32, dim);
      task.dim_stride_bytes = row_bytes(DType::kF32, 1);
      const Pooled want = pool_into(pool_reference(), task, DType::kF32, 0, groups * dim);
      ASSERT_FALSE(want.memory.untouched());
      task.raw = halves.view({1, 1}).data;
      task.stride_bytes = row_bytes(dtype, dim);
      task.raw_dtype = dtype;
      expect_same(pool_into(pool_kernels(kernels_), task, DType::kF32, 0, groups * dim), want, groups * dim, "halves");
      task.turns = turns.data();
      expect_same(pool_into(pool_kernels(kernels_), task, DType::kF32, 0, groups * dim), want, groups * dim, "turns");
    }
  }
}

// The largest magnitude bounds what is stored and is reached by it.
TEST_P(IndexAgreement, TheLargestMagnitudeIsThatOfWhatWasWritten) {
  const Geometry geometry = test::admitted(test::small_index(DType::kBf16));
  const auto weight = test::some_weights(24);
  const Elements raw = Elements::random(DType::kBf16, 16 * 4 * 24, 8);
  const std::vector<Coordinates> at(16, Coordinates{9, 9, 9});
  const PoolTask task{&geometry, weight.data(), raw.view({1, 1}).data, 48, 4, 16, at.data(), nullptr, nullptr, 48, 2};
  const Pooled pooled = pool_into(pool_kernels(kernels_), task, DType::kBf16, 0, 16 * 24);
  float largest = 0.0f;
  for (std::int64_t i = 0; i < 16 * 24; ++i) largest = std::max(largest, std::fabs(pooled.memory.get(i)));
  EXPECT_EQ(pooled.largest, largest);
  EXPECT_GT(largest, 1.0f);
}

class Angles {
 public:
  explicit Angles(Kernels kernels) : kernels_(pool_kernels(kernels)) {}
  void add(float angle) {
    angles_.push_back(angle);
    if (angles_.size() == 4096) compare();
  }
  // How many were compared; the definition was asked for `asked` of them.
  std::int64_t finish() {
    while (!angles_.empty() && angles_.size() % 8 != 0) angles_.push_back(angles_.back());
    if (!angles_.empty()) compare();
    return compared_;
  }
  std::int64_t asked = 0;

 private:
  void compare() {
    std::vector<float> sines(angles_.size());
    std::vector<float> cosines(angles_.size());
    asked += kernels_.sincos(angles_.data(), std::ssize(angles_), sines.data(), cosines.data());
    for (std::size_t i = 0; i < angles_.size(); ++i) {
      const SinCos want = sincos32(angles_[i]);
      ASSERT_EQ(test::bits_of(sines[i]), test::bits_of(want.sin)) << std::hexfloat << angles_[i];
      ASSERT_EQ(test::bits_of(cosines[i]), test::bits_of(want.cos)) << std::hexfloat << angles_[i];
    }
    compared_ += std::ssize(angles_);
    angles_.clear();
  }

  const PoolKernels& kernels_;
  std::vector<float> angles_;
  std::int64_t compared_ = 0;
};

TEST_P(IndexAgreement, TheHardestAnglesAndManyOthers) {
  Angles hard(kernels_);
  for (const sincos_table::Case& hardest : sincos_table::kHardAngles) {
    const float angle = std::bit_cast<float>(hardest.angle);
    if (angle <= 0x1p+31f) hard.add(angle);
  }
  EXPECT_GT(hard.finish(), 200);
  EXPECT_GT(hard.asked, 0);  // some are too hard for a double
  Angles others(kernels_);
  for (const float angle : {0.0f, 0x1p-149f, 0x1p-126f, 0x1p-27f, 0.5f, 1.0f, 0x1p+31f}) others.add(angle);
  Random random(4);
  for (int i = 0; i < 400'000; ++i)
    others.add(std::bit_cast<float>(static_cast<std::uint32_t>(random.below(0x4f000001))));
  for (int i = 0; i < 100'000; ++i) others.add(static_cast<float>(i));
  EXPECT_GT(others.finish(), 500'000);
  if (!kernels_.is_reference()) {
    EXPECT_LT(others.asked, 5'000);
  }
}

// SERIATIM_EVERY_ANGLE in the environment compares every f32 of 0 .. 2^31: minutes per implementation.
TEST_P(IndexAgreement, EveryAngle) {
  if (std::getenv("SERIATIM_EVERY_ANGLE") == nullptr || kernels_.is_reference())
    GTEST_SKIP() << "asked for by SERIATIM_EVERY_ANGLE";
  Angles every(kernels_);
  for (std::uint32_t bits = 0; bits <= 0x4f000000u && !HasFatalFailure(); ++bits) every.add(std::bit_cast<float>(bits));
  EXPECT_EQ(every.finish(), 0x4f000008);
  RecordProperty("asked", std::to_string(every.asked));
}

TEST_P(IndexAgreement, KeysAndQueriesOfTheWholeRoomAtRealSize) {
  std::int64_t compared = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    GeometryOptions options;
    options.index_dtype = dtype;
    options.index_heads = 19;  // more than a batch
    const Geometry geometry = test::admitted(options);
    const std::int64_t dim = geometry.index_dim();
    const auto weight = test::some_weights(dim);
    const Elements raw = Elements::random(dtype, 41 * 4 * dim, 5);
    const Elements queries = Elements::random(dtype, 3 * 19 * dim, 6);
    const std::int64_t positions[] = {0, 262'143, Geometry::kPositions - 1};
    const auto answer = [&](Kernels kernels) {
      Elements pooled(dtype, 41 * dim);
      Elements prepared(dtype, 3 * 19 * dim);
      EXPECT_TRUE(pool_keys_with(kernels, geometry, test::view_of(weight), raw.view({164, dim}), 1'000'003, nullptr,
                                 pooled.writable({41, dim}))
                      .ok());
      EXPECT_TRUE(prepare_index_queries_with(kernels, geometry, test::view_of(weight), queries.view({3, 19, dim}),
                                             positions, nullptr, prepared.writable({3, 19, dim}))
                      .ok());
      auto bytes = pooled.bytes();
      bytes.insert(bytes.end(), prepared.bytes().begin(), prepared.bytes().end());
      return bytes;
    };
    const auto want = answer(Kernels::reference());
    EXPECT_EQ(answer(kernels_), want);
    compared += std::ssize(want);
  }
  EXPECT_GT(compared, 90'000);
}

}  // namespace
}  // namespace seriatim
