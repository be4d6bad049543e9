#include "seriatim/tensor.hpp"

#include <gtest/gtest.h>

#include <array>

namespace seriatim {
namespace {

TEST(DTypes, SizesAndNames) {
  EXPECT_EQ(dtype_bytes(DType::kF32), 4);
  EXPECT_EQ(dtype_bytes(DType::kI32), 4);
  EXPECT_EQ(dtype_bytes(DType::kI64), 8);
  EXPECT_EQ(dtype_bytes(DType::kBf16), 2);
  EXPECT_EQ(dtype_bytes(DType::kF16), 2);
  EXPECT_EQ(dtype_name(DType::kF32), "f32");
  EXPECT_EQ(dtype_name(DType::kBf16), "bf16");
  EXPECT_EQ(dtype_name(DType::kF16), "f16");
  EXPECT_EQ(dtype_name(DType::kI32), "i32");
  EXPECT_EQ(dtype_name(DType::kI64), "i64");
  EXPECT_EQ(dtype_name(static_cast<DType>(99)), "unknown");
  EXPECT_EQ(dtype_bytes(static_cast<DType>(99)), 0);
  EXPECT_TRUE(is_float(DType::kF32) && is_float(DType::kBf16) && is_float(DType::kF16));
  EXPECT_FALSE(is_float(DType::kI32) || is_float(DType::kI64) || is_float(static_cast<DType>(99)));
}

TEST(Tensors, ADenseViewCountsRowMajorAndLeavesUnusedAxesNeutral) {
  std::array<float, 24> memory{};
  const Tensor view = dense_view(memory.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.shape, (std::array<std::int64_t, 4>{2, 3, 4, 1}));
  EXPECT_EQ(view.stride_bytes, (std::array<std::int64_t, 4>{48, 16, 4, 0}));
  int seen = 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t j = 0; j < 3; ++j) {
      for (std::int64_t k = 0; k < 4; ++k) {
        EXPECT_EQ(static_cast<void*>(view.at(i, j, k)), &memory[static_cast<std::size_t>((i * 3 + j) * 4 + k)]);
        ++seen;
      }
    }
  }
  EXPECT_EQ(seen, 24);
}

TEST(Tensors, AConstViewHasTheSameBytes) {
  std::array<std::uint16_t, 6> memory{};
  const Tensor view = dense_view(memory.data(), DType::kBf16, {2, 3});
  const ConstTensor same = as_const(view);
  EXPECT_EQ(same.data, view.data);
  EXPECT_EQ(same.dtype, DType::kBf16);
  EXPECT_EQ(same.rank, 2);
  EXPECT_EQ(same.shape, view.shape);
  EXPECT_EQ(same.stride_bytes, view.stride_bytes);
  EXPECT_TRUE(ConstTensor{}.empty());
  EXPECT_FALSE(same.empty());
}

TEST(Tensors, ARowOfABatchDropsTheFirstAxisAndKeepsTheStrides) {
  std::array<float, 120> memory{};
  Tensor batch = dense_view(memory.data(), DType::kF32, {2, 3, 4, 5});
  batch.stride_bytes = {240, 80, 20, 4};
  const Tensor row = row_of(batch, 1);
  EXPECT_EQ(row.rank, 3);
  EXPECT_EQ(row.shape, (std::array<std::int64_t, 4>{3, 4, 5, 1}));
  EXPECT_EQ(row.stride_bytes, (std::array<std::int64_t, 4>{80, 20, 4, 0}));
  EXPECT_EQ(row.at(2, 3, 4), batch.at(1, 2, 3, 4));
}

TEST(Tensors, AnExtentOfZeroIsAViewOfNothing) {
  const ConstTensor view = dense_view(static_cast<const void*>(nullptr), DType::kF32, {0, 8});
  EXPECT_EQ(view.shape[0], 0);
  EXPECT_EQ(view.stride_bytes[0], 32);
  EXPECT_TRUE(view.empty());
}

}  // namespace
}  // namespace seriatim
