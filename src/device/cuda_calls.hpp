// The functions of the CUDA driver and of its run-time compiler (NVRTC) that the module calls, as tables: those of the
// installed libraries, found at run time, or a test's. Declared here, so that building needs no CUDA toolkit; the
// driver's ABI is stable, and a test holds these lines against cuda.h and nvrtc.h where those are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/driver.hpp"
#include "seriatim/status.hpp"

namespace seriatim::device {

using CuResult = int;  // 0: success
using CuDevice = int;
using CuPointer = unsigned long long;
using CuContext = void*;
using CuStream = void*;
using CuModule = void*;
using CuFunction = void*;
using NvrtcResult = int;
using NvrtcProgram = void*;

inline constexpr CuResult kCuOutOfMemory = 2;
inline constexpr CuResult kCuNoDevice = 100;
inline constexpr NvrtcResult kNvrtcCompilation = 6;
inline constexpr int kCuComputeMajor = 75;  // of CUdevice_attribute
inline constexpr int kCuComputeMinor = 76;

static_assert(sizeof(CuPointer) == sizeof(Memory));

// One line per function: it is declared, looked up and can be replaced by that. X(name here, name in the library,
// parameters).
#define SERIATIM_CUDA_CALLS(X)                                                                                   \
  X(init, cuInit, (unsigned flags))                                                                              \
  X(version, cuDriverGetVersion, (int* version))                                                                 \
  X(device_count, cuDeviceGetCount, (int* count))                                                                \
  X(device, cuDeviceGet, (CuDevice * device, int number))                                                        \
  X(device_name, cuDeviceGetName, (char* name, int bytes, CuDevice device))                                      \
  X(device_memory, cuDeviceTotalMem_v2, (std::size_t* bytes, CuDevice device))                                   \
  X(device_attribute, cuDeviceGetAttribute, (int* value, int attribute, CuDevice device))                        \
  X(retain_context, cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                            \
  X(release_context, cuDevicePrimaryCtxRelease_v2, (CuDevice device))                                            \
  X(push_context, cuCtxPushCurrent_v2, (CuContext context))                                                      \
  X(pop_context, cuCtxPopCurrent_v2, (CuContext * context))                                                      \
  X(make_stream, cuStreamCreate, (CuStream * stream, unsigned flags))                                            \
  X(destroy_stream, cuStreamDestroy_v2, (CuStream stream))                                                       \
  X(wait_for_stream, cuStreamSynchronize, (CuStream stream))                                                     \
  X(take, cuMemAlloc_v2, (CuPointer * memory, std::size_t bytes))                                                \
  X(release, cuMemFree_v2, (CuPointer memory))                                                                   \
  X(take_host, cuMemAllocHost_v2, (void** memory, std::size_t bytes))                                            \
  X(release_host, cuMemFreeHost, (void* memory))                                                                 \
  X(write, cuMemcpyHtoDAsync_v2, (CuPointer to, const void* from, std::size_t bytes, CuStream stream))           \
  X(read, cuMemcpyDtoHAsync_v2, (void* to, CuPointer from, std::size_t bytes, CuStream stream))                  \
  X(copy, cuMemcpyDtoDAsync_v2, (CuPointer to, CuPointer from, std::size_t bytes, CuStream stream))              \
  X(load_module, cuModuleLoadData, (CuModule * module, const void* image))                                       \
  X(unload_module, cuModuleUnload, (CuModule module))                                                            \
  X(function, cuModuleGetFunction, (CuFunction * function, CuModule module, const char* name))                   \
  X(launch, cuLaunchKernel,                                                                                      \
    (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
     unsigned block_z, unsigned shared_bytes, CuStream stream, void** parameters, void** extra))

#define SERIATIM_NVRTC_CALLS(X)                                                                                \
  X(create, nvrtcCreateProgram,                                                                                \
    (NvrtcProgram * program, const char* text, const char* name, int headers, const char* const* header_texts, \
     const char* const* header_names))                                                                         \
  X(destroy, nvrtcDestroyProgram, (NvrtcProgram * program))                                                    \
  X(compile, nvrtcCompileProgram, (NvrtcProgram program, int options, const char* const* option_texts))        \
  X(log_size, nvrtcGetProgramLogSize, (NvrtcProgram program, std::size_t* bytes))                              \
  X(log, nvrtcGetProgramLog, (NvrtcProgram program, char* log))                                                \
  X(ptx_size, nvrtcGetPTXSize, (NvrtcProgram program, std::size_t* bytes))                                     \
  X(ptx, nvrtcGetPTX, (NvrtcProgram program, char* ptx))                                                       \
  X(cubin_size, nvrtcGetCUBINSize, (NvrtcProgram program, std::size_t* bytes))                                 \
  X(cubin, nvrtcGetCUBIN, (NvrtcProgram program, char* cubin))

#define SERIATIM_DECLARE(ours, theirs, parameters) int(*ours) parameters = nullptr;
struct CudaCalls {
  SERIATIM_CUDA_CALLS(SERIATIM_DECLARE)
};
struct NvrtcCalls {
  SERIATIM_NVRTC_CALLS(SERIATIM_DECLARE)
};
#undef SERIATIM_DECLARE

// The installed libraries' functions; looked for once per process. The compiler is libnvrtc.so of any version from 11
// on, or the file that the environment's SERIATIM_NVRTC names.
// Errors  Unsupported: it is not there, or lacks a function.
Result<const CudaCalls*> installed_cuda();
Result<const NvrtcCalls*> installed_nvrtc();

// The driver's devices, in its order. No device is an empty list. Errors  Io, OutOfMemory.
using FindCompiler = Result<const NvrtcCalls*> (*)();
Result<std::vector<Listed>> find_devices(const CudaCalls& calls, FindCompiler find_compiler = installed_nvrtc);

// A program's text compiled for one architecture ("sm_90"): machine code, and the PTX that it was made from.
struct Compiled {
  std::vector<char> code;
  std::vector<char> ptx;
};
// Takes   options beside those that keep the bits, which are always given
// Errors  Unsupported: with the log. OutOfMemory, Io.
Result<Compiled> compile(const NvrtcCalls& compiler, const Build& what, const char* architecture,
                         std::vector<const char*> options = {});

// Errors  OutOfMemory or Io for any code but success; `what` was attempted. argument = device.
Status check_cuda(CuResult code, const char* what);

}  // namespace seriatim::device
