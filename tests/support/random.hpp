// Seeded random numbers that are the same on every machine, and tensors of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "base/half.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim::testing {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(bound));
  }
  // In -1..1, in steps of 2^-23.
  float uniform() { return static_cast<float>(static_cast<std::int32_t>(next() >> 40) - (1 << 23)) * 0x1p-23f; }
  // Near a normal distribution: four uniform numbers' sum.
  float normal() { return uniform() + uniform() + uniform() + uniform(); }

  template <typename T>
  void shuffle(std::span<T> values) {
    for (std::size_t i = values.size(); i > 1; --i)
      std::swap(values[i - 1], values[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
  }

 private:
  std::uint64_t state_;
};

// A dense tensor that owns its memory.
class HostTensor {
 public:
  HostTensor() = default;
  HostTensor(DType dtype, std::initializer_list<std::int64_t> shape)
      : view_(dense_view(static_cast<void*>(nullptr), dtype, shape)) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : shape) elements *= extent;
    bytes_.resize(static_cast<std::size_t>(row_bytes(dtype, elements)));
  }

  ConstTensor view() const {
    ConstTensor view = as_const(view_);
    view.data = bytes_.data();
    return view;
  }
  // `count` entries of the first axis.
  ConstTensor rows(std::int64_t first, std::int64_t count) const {
    ConstTensor view = this->view();
    view.data = view.at(first);
    view.shape[0] = count;
    return view;
  }
  Tensor writable() {
    Tensor view = view_;
    view.data = bytes_.data();
    return view;
  }
  Tensor writable_rows(std::int64_t first, std::int64_t count) {
    Tensor view = writable();
    view.data = view.at(first);
    view.shape[0] = count;
    return view;
  }

  DType dtype() const { return view_.dtype; }
  std::int64_t elements() const { return static_cast<std::int64_t>(bytes_.size()) / dtype_bytes(dtype()); }
  std::span<const std::byte> bytes() const { return bytes_; }
  float get(std::int64_t element) const { return load_element(bytes_.data() + row_bytes(dtype(), element), dtype()); }
  void set(std::int64_t element, float value) {
    store_element(bytes_.data() + row_bytes(dtype(), element), dtype(), value);
  }
  void fill(float value) {
    for (std::int64_t i = 0; i < elements(); ++i) set(i, value);
  }

 private:
  Tensor view_;
  std::vector<std::byte> bytes_;
};

inline HostTensor random_tensor(Random& random, DType dtype, std::initializer_list<std::int64_t> shape,
                                float scale = 1.0f) {
  HostTensor tensor(dtype, shape);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, scale * random.normal());
  return tensor;
}

}  // namespace seriatim::testing
