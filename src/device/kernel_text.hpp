// The kernels' text, put together from src/device/kernels when the library is built.
#pragma once

namespace seriatim::device {

extern const char* const kKernelText;

}  // namespace seriatim::device
