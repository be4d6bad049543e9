// What borrowed tensors must look like, and what of them a run reaches.
#pragma once

#include <cstdint>
#include <vector>

#include "seriatim/borrow.hpp"

namespace seriatim {

struct Borrowing {
  enum class Form { kNone, kArray, kPool, kAddresses };

  Form form = Form::kNone;  // kNone: no keys and values
  bool own_values = false;  // false: none, or they alias the keys
  VectorStrides keys;
  VectorStrides values;
  std::int64_t page_tokens = 1;
  std::int64_t first_page = 0;  // of those that hold tokens of the run
  std::int64_t pages = 0;
};

// Errors  as BorrowedLayer::bind. Takes  named: clear, and clear again afterwards. Throws bad_alloc.
Result<Borrowing> admit_borrowed(const Geometry& geometry, VisibleRun run, const BorrowedTensors& tensors,
                                 std::vector<std::uint64_t>& named);

}  // namespace seriatim
