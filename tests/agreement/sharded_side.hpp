// A problem spread over ranks: threads of this process, each with its own part of the tokens.
#pragma once

#include "agreement/answer.hpp"

namespace seriatim::agreement {

// Takes   way.ranks > 0; its chunk and kernels are used, nothing else of it
// Errors  those of the path; Corrupt where two ranks got two answers.
Result<Answer> sharded_answer(const Problem& problem, const Way& way);

}  // namespace seriatim::agreement
