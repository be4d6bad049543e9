// One bit of one input, turned over: each digest must notice.
#pragma once

#include <string>

#include "agreement/answer.hpp"
#include "agreement/problem.hpp"

namespace seriatim::agreement {

// Looks for one input bit whose change changes `part`, among those that should.
// Takes   right: the answer to `problem`; way: how to compute
// Gives   what was flipped, or an empty string if nothing that was tried showed
// Errors  those of answer.
Result<std::string> flip_shows(const Problem& problem, const Way& way, const Answer& right, Part part);

// The same for the digest of the inputs.
bool flip_shows_in_inputs(const Problem& problem);

}  // namespace seriatim::agreement
