// The kernels' text as it was compiled for the emulation, once per work-group size and pair of dtypes.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace seriatim::testing {

struct EmulatedKernel {
  const char* name = nullptr;
  std::vector<std::size_t> parameter_bytes;
  void (*run)(void* const* parameters) = nullptr;  // as one lane
};

struct EmulatedModule {
  int work_group = 0;
  int kv_dtype = 0;
  int index_dtype = 0;
  std::array<EmulatedKernel, 6> kernels;
};

}  // namespace seriatim::testing
