// Two outputs of one call must not share memory: what is written last would decide, and no error would say so.
#pragma once

#include <cstdint>
#include <string_view>

#include "seriatim/status.hpp"
#include "seriatim/tensor.hpp"

namespace seriatim {

// Whether an element of one lies in an element of the other; views that only interleave (the columns of one array) do
// not. Takes  any views; of those that no admission would let pass nothing is said.
bool share_memory(const Tensor& a, const Tensor& b);

// Errors  InvalidArgument (argument = name).
Status admit_apart(std::string_view name, const Tensor& view, std::string_view other_name, const Tensor& other);

}  // namespace seriatim
