// The smallest place at which any worker found a fault, so that the first is reported whatever ran first.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

namespace seriatim {

class FirstFault {
 public:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  void note(std::int64_t place) {
    std::int64_t seen = first_.load();
    while (place < seen && !first_.compare_exchange_weak(seen, place)) {
    }
  }
  std::int64_t place() const { return first_.load(); }

 private:
  std::atomic<std::int64_t> first_{kNone};
};

}  // namespace seriatim
