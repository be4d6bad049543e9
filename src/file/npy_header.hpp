// The header of an .npy file: a Python dictionary of three known keys, read by a parser that knows nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"

namespace seriatim::file {

struct NpyHeader {
  std::string descr;  // as spelled: "<f4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

// Takes   the text between the length and the data, with its padding and newline.
// Errors  kCorrupt: not exactly {'descr': STRING, 'fortran_order': BOOL, 'shape': TUPLE} in any order;
//         kUnsupported: a structured dtype, or more than 32 extents.
Result<NpyHeader> parse_npy_header(std::string_view text);

}  // namespace seriatim::file
