#include "base/overlap.hpp"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace seriatim {
namespace {

// Every byte of every element, by the definition.
std::set<const std::byte*> bytes_of(const Tensor& view) {
  std::set<const std::byte*> bytes;
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    for (std::int64_t j = 0; j < view.shape[1]; ++j) {
      for (std::int64_t b = 0; b < dtype_bytes(view.dtype); ++b) bytes.insert(view.at(i, j) + b);
    }
  }
  return bytes;
}

bool share(const std::set<const std::byte*>& a, const std::set<const std::byte*>& b) {
  for (const std::byte* byte : a) {
    if (b.contains(byte)) return true;
  }
  return false;
}

Tensor view_at(std::byte* data, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
               std::int64_t column_stride) {
  Tensor view;
  view.data = data;
  view.dtype = dtype;
  view.rank = 2;
  view.shape = {rows, columns, 1, 1};
  view.stride_bytes = {row_stride, column_stride, 0, 0};
  return view;
}

TEST(Overlap, IsThatOfElementsAndNotOfRanges) {
  alignas(8) std::array<std::byte, 256> memory{};
  int shared = 0;
  int apart = 0;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    for (std::int64_t offset = 0; offset < 40; offset += 2) {
      for (const std::int64_t rows : {1, 2, 3}) {
        for (const std::int64_t gap : {8, 12, 20, 24}) {
          const Tensor output = view_at(memory.data() + 16, DType::kF32, 3, 2, 20, 4);
          const Tensor other = view_at(memory.data() + offset, dtype, rows, 2, gap, 4);
          const Tensor turned = view_at(memory.data() + offset, dtype, 2, rows, 4, gap);
          const bool right = share(bytes_of(output), bytes_of(other));
          for (const Tensor& view : {other, turned}) {
            EXPECT_EQ(share_memory(output, view), right) << offset << " " << rows << " " << gap;
            EXPECT_EQ(share_memory(view, output), right) << offset << " " << rows << " " << gap;
          }
          ++(right ? shared : apart);
        }
      }
    }
  }
  EXPECT_GT(shared, 50);
  EXPECT_GT(apart, 50);
}

TEST(Overlap, SaysNothingOfViewsThatNoAdmissionLetsPass) {
  std::array<float, 8> memory{};
  const Tensor fine = dense_view(static_cast<void*>(memory.data()), DType::kF32, {8});
  Tensor none = fine;
  none.data = nullptr;
  Tensor nothing = fine;
  nothing.shape[0] = 0;
  Tensor backwards = fine;
  backwards.stride_bytes[0] = -4;
  Tensor vast = fine;
  vast.shape[0] = INT64_MAX;
  for (const Tensor& view : {none, nothing, backwards, vast}) EXPECT_FALSE(share_memory(fine, view));
  EXPECT_TRUE(share_memory(fine, fine));
  EXPECT_EQ(admit_apart("lse", fine, "output", fine).argument(), "lse");
}

}  // namespace
}  // namespace seriatim
