// How much faster this machine multiplies to screen than to score.
#pragma once

#include "seriatim/kernels.hpp"

namespace seriatim {

// Measured once for these kernels, in a fraction of a millisecond; 0 where there is no fast way, and where there was no
// memory to measure: then it is measured when asked again.
// Threads  any number at once.
double screen_gain(Kernels kernels);

}  // namespace seriatim
