// A reference count inside the object.
//
// std::shared_ptr cannot tell a writer that it is the last holder in a way that also makes the departed readers' reads
// happen before the writer's next writes; acquire on this count does.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace seriatim {

struct Counted {
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  // True when exactly one Ref exists, and everything its former companions did has happened before.
  bool exclusive() const { return references.load(std::memory_order_acquire) == 1; }

  mutable std::atomic<std::int64_t> references{0};
};

// Shared ownership of a Counted. The last holder calls dispose(pointer), found by argument-dependent lookup.
template <typename T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  template <typename U>
  Ref(Ref<U> other) noexcept : object_(other.leak()) {}  // NOLINT(google-explicit-constructor): Ref<T> to Ref<const T>
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && object_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) dispose(object_);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  void reset() { *this = Ref(); }

  // Hands the reference over as a bare pointer, for adopt() to take up again.
  T* leak() { return std::exchange(object_, nullptr); }
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }

 private:
  void retain() {
    if (object_ != nullptr) object_->references.fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

}  // namespace seriatim
