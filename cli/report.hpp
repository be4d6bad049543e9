// What `seriatim run` says of a replay: a table for people, an object for programs.
#pragma once

#include <string>

#include "seriatim/replay.hpp"

namespace seriatim::cli {

std::string table(const std::string& path, const Capture& capture, const Replay& replay);
std::string json(const std::string& path, const Capture& capture, const Replay& replay);

}  // namespace seriatim::cli
