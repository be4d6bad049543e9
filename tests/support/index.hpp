// For tests of pooled keys: the steps of the contract written in another way. Each operation is done in double and
// rounded once, which is exact rounding for f32 operands; halves are rounded by arithmetic instead of by bit steps.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/half.hpp"
#include "seriatim/geometry.hpp"
#include "seriatim/index.hpp"
#include "support/geometries.hpp"
#include "support/rows.hpp"

namespace seriatim::test {

// Rounds to `bits` of significand by arithmetic, ties to even; the values of these tests are normal in every dtype.
inline float nearest_of(int bits, float value) {
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits));
}

inline float nearest(DType dtype, float value) {
  return dtype == DType::kF32 ? value : nearest_of(dtype == DType::kBf16 ? 8 : 11, value);
}

// The places where contract section 3 rounds to the index dtype. A test leaves one out to show that it counts.
enum Rounding : unsigned {
  kMeanStep = 1,
  kNormStep = 2,
  kSinCosStep = 4,
  kProductStep = 8,
  kSumStep = 16,
  kEveryStep = 31
};

struct PoolDefinition {
  const Geometry& geometry;
  std::vector<float> weight;
  unsigned roundings = kEveryStep;

  float round(Rounding step, double value) const {
    const auto single = static_cast<float>(value);
    return (roundings & step) != 0 ? nearest(geometry.index_dtype(), single) : single;
  }

  // `keys`: the r raw keys; `at`: the coordinate of each pair.
  std::vector<float> pooled(const std::vector<std::vector<float>>& keys, const std::vector<std::int64_t>& at) const {
    std::vector<float> mean;
    for (std::size_t i = 0; i < keys[0].size(); ++i) {
      double sum = keys[0][i];
      for (std::size_t t = 1; t < keys.size(); ++t) sum = static_cast<float>(sum + static_cast<double>(keys[t][i]));
      mean.push_back(round(kMeanStep, static_cast<float>(sum / static_cast<double>(keys.size()))));
    }
    return rotated(normed(mean), at);
  }

  std::vector<float> normed(const std::vector<float>& x) const {
    float squares = 0.0f;
    for (const float each : x) squares = std::fma(each, each, squares);
    const auto mean_square = static_cast<float>(static_cast<double>(squares) / static_cast<double>(x.size()));
    const auto sum = static_cast<float>(static_cast<double>(mean_square) + static_cast<double>(geometry.norm_eps()));
    const auto root = static_cast<float>(std::sqrt(static_cast<double>(sum)));
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(root));
    std::vector<float> y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto scaled = static_cast<float>(static_cast<double>(x[i]) * static_cast<double>(inverse));
      const auto one_more = static_cast<float>(1.0 + static_cast<double>(weight[i]));
      y.push_back(round(kNormStep, static_cast<double>(scaled) * static_cast<double>(one_more)));
    }
    return y;
  }

  std::vector<float> rotated(const std::vector<float>& x, const std::vector<std::int64_t>& at) const {
    std::vector<float> y = x;
    const std::size_t half = geometry.inv_freq().size();
    for (std::size_t i = 0; i < half; ++i) {
      const auto position = static_cast<float>(at[i]);
      const auto angle =
          static_cast<float>(static_cast<double>(position) * static_cast<double>(geometry.inv_freq()[i]));
      const double cos = round(kSinCosStep, static_cast<double>(std::cos(static_cast<long double>(angle))));
      const double sin = round(kSinCosStep, static_cast<double>(std::sin(static_cast<long double>(angle))));
      const auto product = [&](float a, double b) {
        return static_cast<double>(round(kProductStep, static_cast<double>(a) * b));
      };
      y[i] = round(kSumStep, product(x[i], cos) - product(x[i + half], sin));
      y[i + half] = round(kSumStep, product(x[i + half], cos) + product(x[i], sin));
    }
    return y;
  }
};

// Elements of a dtype in memory, read and written as f32.
class Elements {
 public:
  Elements(DType dtype, std::int64_t count)
      : dtype_(dtype), bytes_(static_cast<std::size_t>(count * dtype_bytes(dtype)), std::byte{0x5a}), before_(bytes_) {}
  static Elements random(DType dtype, std::int64_t count, std::uint64_t seed) {
    Elements elements(dtype, count);
    Random source(seed);
    for (std::int64_t i = 0; i < count; ++i) elements.set(i, source.uniform());
    return elements;
  }

  void set(std::int64_t i, float value) { store_element(bytes_.data() + i * dtype_bytes(dtype_), dtype_, value); }
  float get(std::int64_t i) const { return load_element(bytes_.data() + i * dtype_bytes(dtype_), dtype_); }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::byte* data() { return bytes_.data(); }
  bool untouched() const { return bytes_ == before_; }

  ConstTensor view(std::initializer_list<std::int64_t> shape) const {
    return dense_view(static_cast<const void*>(bytes_.data()), dtype_, shape);
  }
  Tensor writable(std::initializer_list<std::int64_t> shape) {
    return dense_view(static_cast<void*>(bytes_.data()), dtype_, shape);
  }

 private:
  DType dtype_;
  std::vector<std::byte> bytes_;
  std::vector<std::byte> before_;
};

inline std::vector<float> values(const Elements& elements, std::int64_t first, std::int64_t count) {
  std::vector<float> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(elements.get(first + i));
  return out;
}

using testing::small_index;

inline Geometry admitted(const GeometryOptions& options) {
  auto geometry = Geometry::admit(options);
  EXPECT_TRUE(geometry.ok()) << geometry.status().message();
  return geometry.value();
}

inline std::vector<float> some_weights(std::int64_t dim) {
  Random random(99);
  std::vector<float> weights;
  for (std::int64_t i = 0; i < dim; ++i) weights.push_back(0.25f * random.uniform());
  return weights;
}

inline ConstTensor view_of(const std::vector<float>& values) {
  return dense_view(static_cast<const void*>(values.data()), DType::kF32, {static_cast<std::int64_t>(values.size())});
}

inline std::string dtype_label(const ::testing::TestParamInfo<DType>& dtype) {
  return std::string(dtype_name(dtype.param));
}

}  // namespace seriatim::test
