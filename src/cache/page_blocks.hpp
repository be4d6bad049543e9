// The blocks of a page as they are laid out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "base/checked.hpp"
#include "cache/layout.hpp"

namespace seriatim {

// Lays blocks end to end, each aligned. Once a size does not fit, every later one is absent too.
class PageBlocks {
 public:
  explicit PageBlocks(std::vector<Layout::Block>& blocks) : blocks_(blocks) {}

  std::int64_t add(std::initializer_list<std::int64_t> extents, DType dtype, std::int64_t* owner_bytes) {
    const std::int64_t offset = end_.value_or(0);
    const auto elements = checked_product(extents);
    const auto bytes = elements ? checked_mul(*elements, dtype_bytes(dtype)) : std::nullopt;
    const auto padded = bytes ? checked_add(*bytes, kBlockAlignment - 1) : std::nullopt;
    const std::int64_t aligned = padded.value_or(0) / kBlockAlignment * kBlockAlignment;
    end_ = end_ && padded ? checked_add(*end_, aligned) : std::nullopt;
    if (!end_) return offset;
    *owner_bytes += aligned;
    padded_ = padded_ || aligned != *bytes;
    blocks_.push_back({offset, aligned, dtype});
    return offset;
  }
  std::optional<std::int64_t> end() const { return end_; }
  bool padded() const { return padded_; }

 private:
  std::vector<Layout::Block>& blocks_;
  std::optional<std::int64_t> end_ = 0;
  bool padded_ = false;
};

}  // namespace seriatim
