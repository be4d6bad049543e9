// Paths as the system's calls take them.
#pragma once

#include <string>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::file {

// Errors  kInvalidArgument: NUL, where the system would take the name to end.
inline Status admit_path(const std::string& path) {
  if (path.find('\0') == std::string::npos) return {};
  return Status::error(Code::kInvalidArgument, "file", formatted("{}: the name holds NUL", shown_path(path)));
}

}  // namespace seriatim::file
