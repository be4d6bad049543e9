// Any keys, queries and weights, of any dtype and bits: where the bound holds, every canonical score lies within it of
// the approximate one, and where the set is known it is that of the canonical scores.
#include <cstring>

#include "support/screen_trial.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace seriatim {
namespace {

// Bytes in turn; zeros once they are at an end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  template <class T>
  T take() {
    T value{};
    const std::size_t count = std::min(sizeof value, left_);
    std::memcpy(&value, data_, count);
    data_ += count;
    left_ -= count;
    return value;
  }
  std::int64_t below(std::int64_t n) { return take<std::uint8_t>() % n; }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

// Numbers near each other, or any bits at all.
std::vector<float> floats(Bytes& bytes, std::int64_t count) {
  std::vector<float> all(static_cast<std::size_t>(count));
  const std::int64_t kind = bytes.below(4);
  for (float& x : all) {
    if (kind == 0) {
      x = bytes.take<float>();
    } else {
      const int exponent = kind == 1 ? 0 : static_cast<int>(bytes.below(kind == 2 ? 16 : 255)) - (kind == 2 ? 8 : 140);
      x = std::ldexp(static_cast<float>(bytes.take<std::int16_t>()), exponent - 15);
    }
  }
  return all;
}

}  // namespace
}  // namespace seriatim

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace seriatim;
  constexpr DType kDTypes[] = {DType::kBf16, DType::kF32, DType::kF16};
  Bytes bytes(data, size);
  const DType dtype = kDTypes[bytes.below(3)];
  const std::int64_t heads = 1 + bytes.below(11);
  const std::int64_t dim = 1 + bytes.below(21);
  const std::int64_t groups = 2 + bytes.below(60);
  const std::int64_t keep = 1 + bytes.below(groups - 1);
  const std::int64_t options = bytes.below(16);
  const std::int64_t lead = bytes.below(16);
  const auto geometry = screen_geometry(heads, dim, dtype, (options & 1) != 0, static_cast<ScaleAt>(options / 2 % 4));
  std::vector<float> weights;
  if ((options & 8) != 0) weights = floats(bytes, heads);
  const std::vector<float> query = floats(bytes, heads * dim);
  ScreenTrial trial(geometry, floats(bytes, groups * dim), query, weights, lead);
  for (const ScreenKernels* kernels : {&screen_portable(), screen_native()}) {
    if (kernels == nullptr) continue;
    trial.screen(*kernels);
    if (!trial.holds()) continue;
    if (!(trial.tightness() <= 1.0)) __builtin_trap();
    const auto picked = trial.picked(Kernels::fastest(), keep);
    if (!picked.has_value() || *picked != trial.selected(keep)) __builtin_trap();
  }
  return 0;
}
