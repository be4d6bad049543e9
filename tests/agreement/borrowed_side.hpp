// A problem's keys and values where an engine would keep them: in arrays of their own, or scattered over a pool of
// pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "agreement/answer.hpp"
#include "agreement/problem.hpp"
#include "seriatim/borrow.hpp"

namespace seriatim::agreement {

class BorrowedSide {
 public:
  // Takes   memory: kArray or kPages
  BorrowedSide(const Problem& problem, Memory memory);

  // The view over the borrowed keys and values, with the index of `layer`, for the same run.
  Result<LayerView> view(const LayerView& layer);

 private:
  // Copies [T, heads, dim] into pages of [heads, page_tokens, dim], the last page first; what no token fills is NaN.
  ConstTensor scatter(const ConstTensor& from, std::vector<std::byte>& pool) const;

  BorrowedLayer borrowed_;
  BorrowedTensors tensors_;
  std::vector<std::byte> key_pool_;
  std::vector<std::byte> value_pool_;
  std::vector<std::int32_t> block_table_;
};

}  // namespace seriatim::agreement
