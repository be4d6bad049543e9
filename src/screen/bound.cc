#include "screen/bound.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/half.hpp"

namespace seriatim {
namespace {

constexpr double kU = 0x1p-24;         // a rounding of f32 to nearest
constexpr double kFlushed = 0x1p-126;  // what a flushed result, or an input taken for zero, is off by at most
constexpr double kUnder = 0x1p-149;    // a rounding below the normal numbers
constexpr double kUp = 1.0 + 0x1p-20;  // for the roundings of this file, of of(), and the coefficients' own
constexpr double kSafe = 1e37;

// (1 + u)^n - 1 at most, for n <= 2^13.
double gamma(std::int64_t n) {
  const double nu = static_cast<double>(n) * kU;
  return nu / (1.0 - nu);
}

double dot(const float* x, const float* y, std::int64_t dim) {
  std::array<double, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= dim; i += 8) {
    for (std::size_t k = 0; k < 8; ++k)
      sums[k] += static_cast<double>(x[i + static_cast<std::int64_t>(k)]) *
                 static_cast<double>(y[i + static_cast<std::int64_t>(k)]);
  }
  double all = 0.0;
  for (; i < dim; ++i) all += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  for (const double sum : sums) all += sum;
  return all;
}

// Of some vectors v_h, the largest |sum c_h v_h| that any c in [0, 1]^H can give (all c are 1 without relu), or more.
class Gram {
 public:
  Gram(std::int64_t dim, bool relu) : dim_(dim), relu_(relu) {}

  // The square grows by what w * v adds, `others` being those before it, one after the other.
  void add(double w, const float* v, std::int64_t before, const float* others, const float* weights) {
    const double norm = std::sqrt(dot(v, v, dim_));
    lengths_ += std::fabs(w) * norm;
    square_ += w * w * norm * norm;
    for (std::int64_t h = 0; h < before; ++h) {
      const double other = weights == nullptr ? 1.0 : static_cast<double>(weights[h]);
      const double product = 2.0 * w * other * dot(others + h * dim_, v, dim_);
      square_ += relu_ ? std::max(product, 0.0) : product;
    }
  }
  double bound() const {
    const double slack = static_cast<double>(dim_ + 64) * 0x1p-52 * lengths_ * lengths_;
    return std::sqrt(std::max(square_, 0.0) + slack);
  }

 private:
  const std::int64_t dim_;
  const bool relu_;
  double square_ = 0.0;
  double lengths_ = 0.0;
};

float rounded_up(double coefficient) {
  return static_cast<float>(std::max(coefficient, kFlushed) * kUp);  // a normal number
}

}  // namespace

bool ScreenBound::holds(float most_norm, float most_error) const {
  return largest * (static_cast<double>(most_norm) + static_cast<double>(most_error) + 1.0) < kSafe;
}

ScreenBound screen_bound(const Geometry& geometry, const ConstTensor& query, const float* head_weights, bool exact_keys,
                         float* room) {
  const std::int64_t heads = geometry.index_heads();
  const std::int64_t dim = geometry.index_dim();
  const bool exact_query = query.dtype == DType::kBf16;
  const double inverse_sqrt_dim = 1.0 / std::sqrt(static_cast<double>(dim));
  // The f32 that the score multiplies or divides by is within a rounding of this; kUp covers it.
  const double scale = geometry.scale_at() == ScaleAt::kNowhere ? 1.0 : inverse_sqrt_dim;

  float* whole = room;               // [heads][dim]
  float* left = room + heads * dim;  // what rounding to bf16 took off
  Gram of_query(dim, geometry.relu());
  Gram of_left(dim, geometry.relu());
  double weights = 0.0, lengths = 0.0, near_lengths = 0.0, longest = 0.0;
  for (std::int64_t h = 0; h < heads; ++h) {
    float* q = whole + h * dim;
    float* f = left + h * dim;
    double near = 0.0;
    for (std::int64_t i = 0; i < dim; ++i) {
      q[i] = load_element(query.at(h, i), query.dtype);
      const float rounded = from_bf16(to_bf16(q[i]));
      f[i] = q[i] - rounded;
      near += static_cast<double>(rounded) * static_cast<double>(rounded);
    }
    const double w = head_weights == nullptr ? 1.0 : static_cast<double>(head_weights[h]);
    const double length = std::sqrt(dot(q, q, dim));
    weights += std::fabs(w);
    lengths += std::fabs(w) * length;
    near_lengths += std::fabs(w) * std::sqrt(near);
    longest = longest + length + std::sqrt(near);
    if (!exact_keys) of_query.add(w, q, h, whole, head_weights);
    if (!exact_query) of_left.add(w, f, h, left, head_weights);
  }
  const std::int64_t even = (dim + 1) / 2 * 2;
  const double finish = gamma(heads + 2);
  const double canonical = gamma(dim) + finish * (1.0 + gamma(dim));
  const double near = gamma(even) + finish * (1.0 + gamma(even));
  const double root = std::sqrt(static_cast<double>(dim));

  ScreenBound bound{};
  const double by_rounding = scale * lengths * canonical;
  bound.by_error = rounded_up(scale * of_query.bound() + by_rounding);
  bound.by_norm = rounded_up(scale * of_left.bound() + by_rounding + scale * near_lengths * near +
                             scale * weights * root * kFlushed);
  const double flushed = weights * 2.0 * static_cast<double>(even) * kFlushed + near_lengths * root * kFlushed;
  const double under =
      weights * static_cast<double>(dim) * kUnder + 2.0 * kUnder * (static_cast<double>(heads) + weights + 2.0);
  bound.always = rounded_up((flushed + under) * (1.0 + 2.0 * finish));
  bound.largest = 2.0 * (lengths + near_lengths + longest + weights);
  return bound;
}

}  // namespace seriatim
