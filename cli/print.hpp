// Standard output and standard error. What cannot be written is not lost in silence: the tool then ends with status 2.
#pragma once

#include <string_view>
#include <utility>

#include "base/format.hpp"

namespace seriatim::cli {

// Makes the three standard descriptors be there, so that no file opened later becomes one of them, and lets a limit on
// file sizes be an error rather than a signal.
void open_standard_streams();

void print(std::string_view text);

template <typename... Args>
void print(fmt::format_string<Args...> pattern, Args&&... args) {
  print(std::string_view(vformatted(pattern, fmt::make_format_args(args...))));
}

// One line on standard error, without control characters.
void complain(std::string_view text);

// What the process ends with: `code`, or kBadInput and a line on standard error when standard output is incomplete.
int finished(int code);

}  // namespace seriatim::cli
