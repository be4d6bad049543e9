// Memory that a call may not both write and use otherwise.
#pragma once

#include <initializer_list>

#include "seriatim/tensor.hpp"

namespace seriatim::python {

struct Part {
  const char* argument;
  ConstTensor view;  // or empty
};

// Errors  InvalidArgument: one of `written` shares a byte with another of them, or with one of `read`. Strided views
//         that interleave share none; where that would take long to find out, they are taken to share.
void refuse_overlap(std::initializer_list<Part> written, std::initializer_list<Part> read);

}  // namespace seriatim::python
