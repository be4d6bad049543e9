// Formatted text on a stream.
#pragma once

#include <cstdio>

#include "base/format.hpp"

namespace seriatim::bench {

template <typename... Args>
void print(std::FILE* to, fmt::format_string<Args...> pattern, Args&&... args) {
  std::fputs(vformatted(pattern, fmt::make_format_args(args...)).c_str(), to);
}

}  // namespace seriatim::bench
