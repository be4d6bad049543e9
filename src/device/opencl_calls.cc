#include "device/opencl_calls.hpp"

#include <dlfcn.h>

#include "base/format.hpp"

namespace seriatim::device {
namespace {

Result<OpenClCalls> load() {
  void* library = nullptr;
  for (const char* name : {"libOpenCL.so.1", "libOpenCL.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return Status::error(Code::kUnsupported, "device", "device: this machine has no OpenCL loader (libOpenCL.so.1)");
  }
  OpenClCalls calls;
  const char* missing = nullptr;
  const auto find = [&](const char* name) {
    void* found = dlsym(library, name);
    if (found == nullptr) missing = name;
    return found;
  };
#define SERIATIM_FIND(name) calls.name = reinterpret_cast<decltype(calls.name)>(find(#name));
  SERIATIM_OPENCL_CALLS(SERIATIM_FIND)
#undef SERIATIM_FIND
  if (missing != nullptr) {
    return Status::error(Code::kUnsupported, "device", formatted("device: the OpenCL loader lacks {}", missing));
  }
  return calls;  // the library stays: drivers do not bear being unloaded
}

}  // namespace

Result<const OpenClCalls*> installed_opencl() {
  static const Result<OpenClCalls> calls = load();
  if (!calls.ok()) return calls.status();
  return &calls.value();
}

Status check(cl_int code, const char* what) {
  if (code == CL_SUCCESS) return {};
  const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_RESOURCES ||
                      code == CL_OUT_OF_HOST_MEMORY || code == CL_INVALID_BUFFER_SIZE;
  return Status::error(memory ? Code::kOutOfMemory : Code::kIo, "device",
                       formatted("device: {} gave OpenCL error {}", what, code));
}

}  // namespace seriatim::device
