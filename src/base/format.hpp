// Formatted text for messages. Only fmt's argument types are needed here; its formatting is compiled once, in
// format.cc, where every including file would otherwise compile it again.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace seriatim {

std::string vformatted(fmt::string_view pattern, fmt::format_args arguments);

// As fmt::format: the pattern is checked against the arguments when it is compiled.
template <typename... Args>
std::string formatted(fmt::format_string<Args...> pattern, Args&&... args) {
  return vformatted(pattern, fmt::make_format_args(args...));
}

// "4, 2, 32"
std::string joined(std::span<const std::int64_t> numbers, std::string_view between);

}  // namespace seriatim
