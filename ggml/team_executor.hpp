// OpenMP's threads as an executor. ggml's CPU backend runs on the same ones, whose workers wait for work by spinning:
// threads of our own would share their processors with them.
#pragma once

#include <memory>

#include "seriatim/executor.hpp"

namespace seriatim::plugin {

// Null where this was compiled without OpenMP.
std::unique_ptr<Executor> make_team_executor(int threads);

}  // namespace seriatim::plugin
