// The arithmetic: an engine's outputs against ours, on the engine's own rows.
#pragma once

#include <vector>

#include "seriatim/check.hpp"

namespace seriatim {

// Takes   a selection with outputs, and the capture of the same queries
// Gives   findings by row; rows that attention cannot read (a position outside, or twice) are not compared
Status judge_outputs(const Selection& selection, const JudgedCapture& against, const CheckOptions& options,
                     std::vector<Finding>& findings, ArithmeticReport& report);

}  // namespace seriatim
