// The vector code of attention. Null for the reference and for instruction sets without it.
#pragma once

#include "attend/attend_kernels.hpp"

namespace seriatim {

const AttendKernels* attend_simd(Kernels kernels);

}  // namespace seriatim
