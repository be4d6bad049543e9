// The OpenCL functions that the module calls, as a table: the installed loader's, found at run time, or a test's that
// fail.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <memory>
#include <vector>

#include "device/driver.hpp"
#include "seriatim/status.hpp"

// One line per function: it is declared, looked up and can be replaced by that.
// clang-format off: it does not come to rest on this list
#define SERIATIM_OPENCL_CALLS(X)                                                                  \
  X(clGetPlatformIDs) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clCreateContext) X(clReleaseContext) \
  X(clCreateCommandQueue) X(clReleaseCommandQueue) X(clCreateProgramWithSource) X(clBuildProgram) \
  X(clGetProgramBuildInfo) X(clReleaseProgram) X(clCreateKernel) X(clReleaseKernel)               \
  X(clSetKernelArg) X(clCreateBuffer) X(clReleaseMemObject) X(clEnqueueWriteBuffer)               \
  X(clEnqueueReadBuffer) X(clEnqueueCopyBuffer) X(clEnqueueNDRangeKernel) X(clFlush) X(clFinish)
// clang-format on

namespace seriatim::device {

struct OpenClCalls {
#define SERIATIM_DECLARE(name) decltype(&::name) name = nullptr;
  SERIATIM_OPENCL_CALLS(SERIATIM_DECLARE)
#undef SERIATIM_DECLARE
};

// The installed loader's functions; looked for once per process.
// Errors  Unsupported: there is no loader, or one that lacks a function.
Result<const OpenClCalls*> installed_opencl();

// The devices of all platforms, in the order in which they are numbered. No device is an empty list. Errors  Io,
// OutOfMemory.
Result<std::vector<Listed>> find_devices(const OpenClCalls& calls);

// Opens one. The driver has its own copy of the table. Errors  OutOfMemory, Io.
Result<std::unique_ptr<Driver>> open_opencl(const OpenClCalls& calls, cl_device_id id, bool promises_division);

// Errors  OutOfMemory or Io for any code but CL_SUCCESS; `what` was attempted. argument = device.
Status check(cl_int code, const char* what);

}  // namespace seriatim::device
