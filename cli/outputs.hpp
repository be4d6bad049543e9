// The files that a command writes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "seriatim/status.hpp"

namespace seriatim::cli {

struct Output {
  std::string_view option;  // "json"
  std::string path;         // empty: none; "-": standard output
};

// What can be said of them before anything is computed: that each can be written, and that none of them is an input or
// another output.
// Errors  kInvalidArgument, kIo.
Status admit_outputs(const std::vector<std::string>& inputs, const std::vector<Output>& outputs);

Status write_output(const std::string& path, std::string_view text);

}  // namespace seriatim::cli
