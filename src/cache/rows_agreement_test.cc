// Every implementation copies rows and finds their largest magnitude as the scalar one does: odd lengths, all dtypes,
// faults in every place.
#include <gtest/gtest.h>

#include <cctype>
#include <random>
#include <string>
#include <vector>

#include "cache/rows.hpp"

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
        EXPECT_EQ(largest, row_reference().copy(begin, elements, dtype, want.data() + 1));
        ASSERT_EQ(got, want) << elements;
        EXPECT_EQ(kernels_.largest(begin, elements, dtype), largest);
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
