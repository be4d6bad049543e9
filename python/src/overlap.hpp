// Memory that a call may not both write and use otherwise.
#pragma once

#include <vector>

#include "seriatim/tensor.hpp"

namespace seriatim::python {

struct Part {
  const char* argument;
  ConstTensor view;  // or empty
};

// Errors  InvalidArgument: one of `written` shares a byte with another of them, or with one of `read`. Strided views
//         that interleave share none; where that would take long to find out, they are taken to share.
void refuse_overlap(const std::vector<Part>& written, const std::vector<Part>& read);

}  // namespace seriatim::python
