// Every implementation copies rows and finds their largest magnitude as the scalar one does: odd lengths, all dtypes,
// faults in every place.
#include "base/magnitude.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/half.hpp"

namespace seriatim {
namespace {

class RowsAgreement : public testing::TestWithParam<std::string> {
 protected:
  const RowKernels& kernels_ = row_kernels(*Kernels::named(GetParam()));
};

TEST_P(RowsAgreement, TheForcedImplementationIsTheOneThatRuns) {
  std::string name(kernels_.name);
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  EXPECT_EQ(name, GetParam());
}

std::vector<std::byte> finite_row(std::int64_t elements, DType dtype, std::mt19937& random) {
  std::vector<std::byte> row(static_cast<std::size_t>(elements * dtype_bytes(dtype)));
  for (std::int64_t i = 0; i < elements; ++i) {
    const float scale = random() % 3 == 0 ? 1e-6f : 1000.0f;
    const float value = scale * (static_cast<float>(random() >> 8) / (1 << 23) - 1.0f);
    store_element(row.data() + i * dtype_bytes(dtype), dtype, value);
  }
  return row;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(Magnitude, ANaNIsAboveAllAndStays) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isnan(larger_magnitude(nan, 1.0f)));
  EXPECT_TRUE(std::isnan(larger_magnitude(infinite, nan)));
  EXPECT_EQ(larger_magnitude(1.0f, infinite), infinite);
  EXPECT_EQ(bound_of(nan), infinite);
  EXPECT_EQ(bound_of(2.0f), 2.0f);
}

TEST(Magnitude, IsThatOfAViewWhateverItsStrides) {
  const float values[] = {1.0f, -7.0f, 2.0f, 3.0f, -4.0f, 100.0f};
  ConstTensor view = dense_view(static_cast<const void*>(values), DType::kF32, {2, 3});
  EXPECT_EQ(largest_magnitude(view), 100.0f);
  view.shape[1] = 2;
  EXPECT_EQ(largest_magnitude(view), 7.0f);
  ConstTensor turned = view;
  std::swap(turned.shape[0], turned.shape[1]);
  std::swap(turned.stride_bytes[0], turned.stride_bytes[1]);
  EXPECT_EQ(largest_magnitude(turned), 7.0f);
  view.shape[0] = 0;
  EXPECT_EQ(largest_magnitude(view), 0.0f);
}

TEST_P(RowsAgreement, OnEveryLengthAndFault) {
  std::mt19937 random(1);
  std::int64_t rows = 0;
  int faults = 0;
  constexpr float kFaults[] = {1.0f, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()};
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    const std::int64_t bytes = dtype_bytes(dtype);
    for (std::int64_t elements = 0; elements <= 150; ++elements) {
      for (std::int64_t place = 0; place < std::max<std::int64_t>(elements, 1); ++place) {
        auto row = finite_row(elements + 1, dtype, random);
        std::byte* begin = row.data() + (place % 2) * bytes;  // any alignment
        const float fault = kFaults[random() % 5];
        if (elements > 0) store_element(begin + place * bytes, dtype, fault);
        std::vector<std::byte> got(row.size() + 64, std::byte{0x5a});
        std::vector<std::byte> want = got;
        const float largest = kernels_.copy(begin, elements, dtype, got.data() + 1);
        EXPECT_TRUE(same(largest, row_reference().copy(begin, elements, dtype, want.data() + 1)));
        ASSERT_EQ(got, want) << elements;
        EXPECT_TRUE(same(kernels_.largest(begin, elements, dtype), largest));
        EXPECT_EQ(std::isnan(largest), elements > 0 && std::isnan(fault));
        EXPECT_EQ(std::isfinite(largest), elements == 0 || std::isfinite(fault));
        if (!std::isfinite(largest)) {
          EXPECT_EQ(first_not_finite(begin, elements, dtype), place);
          ++faults;
        }
        ++rows;
      }
    }
  }
  EXPECT_GT(rows, 30'000);
  EXPECT_GT(faults, 20'000);
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Kernels& kernels : Kernels::available()) all.push_back(kernels.name());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowsAgreement, testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace seriatim
