// A file of text, whole or not at all; "-" is standard output.
#pragma once

#include <string>
#include <string_view>

#include "seriatim/status.hpp"

namespace seriatim::cli {

Status write_text(const std::string& path, std::string_view text);

}  // namespace seriatim::cli
