// How much faster this machine multiplies to screen than to score.
#pragma once

#include "seriatim/kernels.hpp"

namespace seriatim {

// Measured once for these kernels, in a fraction of a millisecond; 0 where there is no fast way.
// Threads  any number at once.
double screen_gain(Kernels kernels);

}  // namespace seriatim
