#define FMT_HEADER_ONLY 1
#include "base/format.hpp"

#include <fmt/format.h>

namespace seriatim {

std::string vformatted(fmt::string_view pattern, fmt::format_args arguments) {
  return fmt::vformat(pattern, arguments);
}

std::string joined(std::span<const std::int64_t> numbers, std::string_view between) {
  return fmt::format("{}", fmt::join(numbers, between));
}

}  // namespace seriatim
