// Scratch on whole cache lines. Nothing is set when it is taken, so pages that are never used cost no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

namespace seriatim {

template <typename T>
class AlignedBuffer {
  static_assert(std::is_trivially_default_constructible_v<T> && std::is_trivially_destructible_v<T>);

 public:
  static constexpr std::align_val_t kAlignment{64};

  AlignedBuffer() = default;
  // Throws std::bad_alloc. `count` is admitted: its bytes fit 64 bits.
  explicit AlignedBuffer(std::int64_t count)
      : data_(static_cast<T*>(::operator new(static_cast<std::size_t>(count) * sizeof(T), kAlignment))),
        count_(count) {}
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~AlignedBuffer() { ::operator delete(data_, kAlignment); }

  T* data() const { return data_; }
  std::int64_t size() const { return count_; }

 private:
  T* data_ = nullptr;
  std::int64_t count_ = 0;
};

}  // namespace seriatim
