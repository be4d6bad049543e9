// The `geometry` JSON object of a capture.
#pragma once

#include <string_view>

#include "seriatim/geometry.hpp"
#include "seriatim/status.hpp"

namespace seriatim {

// Reads the object into options; what it does not name keeps its default.
// Errors  Corrupt: not a JSON object, a key missing or of another type. Unsupported: a key this version does not know.
Result<GeometryOptions> parse_geometry(std::string_view json);

}  // namespace seriatim
