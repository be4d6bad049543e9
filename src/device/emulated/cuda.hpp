// CUDA without a GPU, for tests: a driver and a compiler over this process's memory, as strict as the real ones. Work
// is done when the stream is waited for (or a transfer with ordinary host memory makes it wait), pinned memory is read
// and written then and not before, a context must be current, and lanes must meet at barriers.
#pragma once

#include <cstdint>

#include "device/cuda_calls.hpp"

namespace seriatim::testing {

struct CudaFaults {
  std::int64_t left = 0;  // the so manieth call from now on fails, once; 0: none does
  bool lost = false;      // a kernel has faulted: every later call fails
  bool no_device = false;
  bool no_compiler = false;
  std::int64_t buffers_made = 0;  // device memory taken so far
  std::int64_t held = 0;          // allocations, modules, streams and contexts not given back
};

// One per process; a test that uses it begins with reset().
CudaFaults& cuda_faults();
device::CudaCalls emulated_cuda();
Result<const device::NvrtcCalls*> emulated_nvrtc();

// Opens "cuda" in it. Work-groups of 4 lanes for the three dtypes and for bf16 with an f32 index, and of 1 and 7 for
// bf16.
Result<std::shared_ptr<Device>> open_emulated(std::int64_t work_group = 4, const char* kernel_text = nullptr);

}  // namespace seriatim::testing
