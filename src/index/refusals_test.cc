// What the index module refuses. Each refusal names the argument and leaves the output as it was.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <limits>

#include "support/index.hpp"

namespace seriatim {
namespace {

using test::Elements;
using test::expect_refused;

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

class PoolRefuses : public ::testing::Test {
 protected:
  void refuse(Code code, std::string_view argument, Place place, std::string_view words) {
    expect_refused(pool_keys(geometry_, norm_weight_, raw_, position_, coordinates_, pooled_), code, argument, place,
                   words);
    EXPECT_TRUE(pooled_memory_.untouched());
  }

  Geometry geometry_ = test::admitted(test::small_index(DType::kBf16));
  std::vector<float> weights_ = test::some_weights(24);
  Elements raw_memory_ = Elements::random(DType::kBf16, 9 * 24, 1);
  Elements pooled_memory_{DType::kBf16, 2 * 24};
  ConstTensor norm_weight_ = test::view_of(weights_);
  ConstTensor raw_ = raw_memory_.view({9, 24});
  Tensor pooled_ = pooled_memory_.writable({2, 24});
  std::int64_t position_ = 0;
  const Coordinates* coordinates_ = nullptr;
};

TEST_F(PoolRefuses, NothingHere) {
  EXPECT_TRUE(pool_keys(geometry_, norm_weight_, raw_, position_, coordinates_, pooled_).ok());
  EXPECT_FALSE(pooled_memory_.untouched());
}

TEST_F(PoolRefuses, ViewsOfAnotherShapeDtypeOrStride) {
  raw_.dtype = DType::kF32;
  refuse(Code::kInvalidArgument, "index_keys", {}, "dtype f32 where bf16");
  raw_ = raw_memory_.view({9, 23});
  refuse(Code::kInvalidArgument, "index_keys", {}, "axis 1 has extent 23 where 24");
  raw_ = raw_memory_.view({9, 24});
  raw_.stride_bytes[0] = -48;
  refuse(Code::kInvalidArgument, "index_keys", {}, "stride of -48");
  raw_.stride_bytes[0] = kMax - 1;
  refuse(Code::kOverflow, "index_keys", {}, "passes 64-bit sizes");
  raw_ = raw_memory_.view({9, 24});
  raw_.data = nullptr;
  refuse(Code::kInvalidArgument, "index_keys", {}, "no data");
}

TEST_F(PoolRefuses, AnOutputForAnotherNumberOfGroups) {
  pooled_.shape[0] = 3;
  refuse(Code::kInvalidArgument, "pooled", {}, "axis 0 has extent 3 where 2");
  pooled_.shape[0] = 2;
  pooled_.dtype = DType::kF16;
  refuse(Code::kInvalidArgument, "pooled", {}, "dtype f16 where bf16");
}

TEST_F(PoolRefuses, NormWeightsThatDoNotFit) {
  weights_.pop_back();
  norm_weight_ = test::view_of(weights_);
  refuse(Code::kInvalidArgument, "index_norm_weight", {}, "axis 0 has extent 23 where 24");
  weights_.assign(48, 0.0f);
  norm_weight_ = dense_view(static_cast<const void*>(weights_.data()), DType::kF32, {24});
  norm_weight_.stride_bytes[0] = 8;
  refuse(Code::kInvalidArgument, "index_norm_weight", {}, "not contiguous");
  norm_weight_.stride_bytes[0] = 4;
  norm_weight_.data += 2;
  refuse(Code::kInvalidArgument, "index_norm_weight", {}, "not aligned");
  norm_weight_ = {};
  refuse(Code::kInvalidArgument, "index_norm_weight", {}, "rank 0 where 1");
}

TEST_F(PoolRefuses, NonFiniteKeysByTokenAndDimEvenInTheOpenTail) {
  for (const float bad : {test::kNaN, test::kInfinity, -test::kInfinity}) {
    for (const std::int64_t token : {0, 5, 8}) {
      raw_memory_ = Elements::random(DType::kBf16, 9 * 24, 1);
      raw_memory_.set(token * 24 + 23, bad);
      raw_ = raw_memory_.view({9, 24});
      refuse(Code::kNotFinite, "index_keys", {token, 23}, "element 23 of row " + std::to_string(token));
    }
  }
}

TEST_F(PoolRefuses, NonFiniteNormWeights) {
  weights_[11] = test::kInfinity;
  refuse(Code::kNotFinite, "index_norm_weight", {11, 0}, "row 11");
}

TEST_F(PoolRefuses, PositionsThatThereAreNot) {
  for (const std::int64_t position :
       {std::int64_t{-1}, Geometry::kPositions - 8, Geometry::kPositions, std::int64_t{1} << 32, kMax}) {
    position_ = position;
    refuse(Code::kInvalidArgument, "first_position", {},
           "9 tokens from " + std::to_string(position) + " are not in 0..2147483647");
  }
  position_ = Geometry::kPositions - 9;
  EXPECT_TRUE(pool_keys(geometry_, norm_weight_, raw_, position_, coordinates_, pooled_).ok());
}

TEST_F(PoolRefuses, AbsentOrNegativeCoordinatesWhereAxesAreNamed) {
  auto options = test::small_index(DType::kBf16);
  options.rope_axes.assign(8, 2);
  geometry_ = test::admitted(options);
  refuse(Code::kInvalidArgument, "coordinates", {}, "needed because the geometry names rope_axes");
  std::vector<Coordinates> coordinates(9, Coordinates{1, 2, 3});
  coordinates[4] = {1, 2, -3};
  coordinates_ = coordinates.data();
  refuse(Code::kInvalidArgument, "coordinates", {4, -1}, "-3 of row 4 is negative");
}

TEST(PackRefuses, WhatIsNoPooledKey) {
  const Geometry geometry = test::admitted(test::small_index(DType::kF16));
  const Elements pooled = Elements::random(DType::kF16, 2 * 24, 1);
  Elements panels(DType::kF16, 16 * 24);
  expect_refused(pack_pooled_keys(geometry, pooled.view({2, 23}), panels.data()), Code::kInvalidArgument, "pooled", {},
                 "extent 23");
  expect_refused(pack_pooled_keys(geometry, pooled.view({48}), panels.data()), Code::kInvalidArgument, "pooled", {},
                 "rank 1");
  expect_refused(pack_pooled_keys(geometry, pooled.view({2, 24}), nullptr), Code::kInvalidArgument, "panels", {},
                 "no data");
  EXPECT_TRUE(panels.untouched());
}

class PrepareRefuses : public ::testing::Test {
 protected:
  void refuse(Code code, std::string_view argument, Place place, std::string_view words,
              const Coordinates* coordinates = nullptr) {
    const Status status =
        prepare_index_queries(geometry_, test::view_of(weights_), raw_, positions_, coordinates, prepared_);
    expect_refused(status, code, argument, place, words);
    EXPECT_TRUE(prepared_memory_.untouched());
  }

  Geometry geometry_ = test::admitted(test::small_index(DType::kF32));
  std::vector<float> weights_ = test::some_weights(24);
  Elements raw_memory_ = Elements::random(DType::kF32, 2 * 3 * 24, 1);
  Elements prepared_memory_{DType::kF32, 2 * 3 * 24};
  ConstTensor raw_ = raw_memory_.view({2, 3, 24});
  Tensor prepared_ = prepared_memory_.writable({2, 3, 24});
  std::int64_t position_values_[2] = {5, 6};
  const std::int64_t* positions_ = position_values_;
};

TEST_F(PrepareRefuses, ViewsThatDoNotFit) {
  raw_ = raw_memory_.view({3, 2, 24});
  refuse(Code::kInvalidArgument, "index_queries", {}, "axis 1 has extent 2 where 3");
  raw_ = raw_memory_.view({2, 3, 24});
  prepared_.shape[0] = 1;
  refuse(Code::kInvalidArgument, "prepared", {}, "axis 0 has extent 1 where 2");
}

TEST_F(PrepareRefuses, PositionsThatThereAreNotByQuery) {
  positions_ = nullptr;
  refuse(Code::kInvalidArgument, "positions", {}, "no data");
  positions_ = position_values_;
  for (const std::int64_t bad : {std::int64_t{-1}, Geometry::kPositions, kMax}) {
    position_values_[1] = bad;
    refuse(Code::kInvalidArgument, "positions", {1, -1}, std::to_string(bad) + " of row 1 is not in 0..2147483647");
  }
}

TEST_F(PrepareRefuses, NonFiniteQueriesByQueryAndElement) {
  raw_memory_.set(3 * 24 + 2 * 24 + 7, test::kNaN);
  refuse(Code::kNotFinite, "index_queries", {1, 55}, "element 55 of row 1 is nan");
}

TEST_F(PrepareRefuses, CoordinatesThatAreAbsentOrNegative) {
  auto options = test::small_index(DType::kF32);
  options.rope_axes.assign(8, 0);
  geometry_ = test::admitted(options);
  refuse(Code::kInvalidArgument, "coordinates", {}, "needed because the geometry names rope_axes");
  const Coordinates coordinates[] = {{0, 0, 0}, {0, -1, 0}};
  refuse(Code::kInvalidArgument, "coordinates", {1, -1}, "-1 of row 1 is negative", coordinates);
}

// vllm#52109, MSLK#257: byte offsets past 2^31 and 2^32 were cut to 32 bits. The memory between the keys is reserved
// and never touched.
TEST(FarStrides, KeysMoreThanTwoToTheThirtyTwoBytesApartAreRead) {
  auto options = test::small_index(DType::kF32);
  options.group_tokens = 2;
  const Geometry geometry = test::admitted(options);
  const auto weight = test::some_weights(24);
  const Elements near = Elements::random(DType::kF32, 4 * 24, 1);
  Elements expected(DType::kF32, 2 * 24);
  ASSERT_TRUE(
      pool_keys(geometry, test::view_of(weight), near.view({4, 24}), 0, nullptr, expected.writable({2, 24})).ok());
  const std::int64_t stride_bytes = (std::int64_t{1} << 31) + 4096;
  const auto reserved = static_cast<std::size_t>(3 * stride_bytes + 4096);
  void* memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space to reserve";
  ConstTensor far = dense_view(static_cast<const void*>(memory), DType::kF32, {4, 24});
  far.stride_bytes[0] = stride_bytes;
  for (std::int64_t t = 0; t < 4; ++t)
    std::memcpy(static_cast<std::byte*>(memory) + t * stride_bytes, near.bytes().data() + t * 96, 96);
  Elements pooled(DType::kF32, 2 * 24);
  EXPECT_TRUE(pool_keys(geometry, test::view_of(weight), far, 0, nullptr, pooled.writable({2, 24})).ok());
  EXPECT_EQ(pooled.bytes(), expected.bytes());
  munmap(memory, reserved);
}

}  // namespace
}  // namespace seriatim
