#include "device/cuda_calls.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <span>

#include "base/format.hpp"

namespace seriatim::device {
namespace {

Status absent(std::string_view what) {
  return Status::error(Code::kUnsupported, "device", formatted("device: this machine has no {}", what));
}

// The first of the libraries that is there; it stays, as drivers do not bear being unloaded.
void* open_first(std::span<const char* const> names) {
  for (const char* name : names) {
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  }
  return nullptr;
}

Status lacks(const char* library, const char* name) {
  return Status::error(Code::kUnsupported, "device", formatted("device: {} lacks {}", library, name));
}

#define SERIATIM_FIND(ours, theirs, parameters)                                 \
  calls.ours = reinterpret_cast<decltype(calls.ours)>(dlsym(library, #theirs)); \
  if (calls.ours == nullptr) missing = #theirs;

Result<CudaCalls> load_driver() {
  constexpr std::array kNames{"libcuda.so.1", "libcuda.so"};
  void* const library = open_first(kNames);
  if (library == nullptr) return absent("CUDA driver (libcuda.so.1)");
  CudaCalls calls;
  const char* missing = nullptr;
  SERIATIM_CUDA_CALLS(SERIATIM_FIND)
  if (missing != nullptr) return lacks("libcuda.so.1", missing);
  return calls;
}

Result<NvrtcCalls> load_compiler() {
  constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so",
                              "/usr/local/cuda/lib64/libnvrtc.so"};
  const char* const named = std::getenv("SERIATIM_NVRTC");
  void* const library = named != nullptr ? open_first({&named, 1}) : open_first(kNames);
  if (library == nullptr) {
    if (named != nullptr) return absent(formatted("CUDA run-time compiler at SERIATIM_NVRTC: {}", named));
    return absent("CUDA run-time compiler (libnvrtc.so; SERIATIM_NVRTC can name it)");
  }
  NvrtcCalls calls;
  const char* missing = nullptr;
  SERIATIM_NVRTC_CALLS(SERIATIM_FIND)
  if (missing != nullptr) return lacks("libnvrtc.so", missing);
  return calls;
}

#undef SERIATIM_FIND

}  // namespace

Result<const CudaCalls*> installed_cuda() {
  static const Result<CudaCalls> calls = load_driver();
  if (!calls.ok()) return calls.status();
  return &calls.value();
}

Result<const NvrtcCalls*> installed_nvrtc() {
  static const Result<NvrtcCalls> calls = load_compiler();
  if (!calls.ok()) return calls.status();
  return &calls.value();
}

Status check_cuda(CuResult code, const char* what) {
  if (code == 0) return {};
  return Status::error(code == kCuOutOfMemory ? Code::kOutOfMemory : Code::kIo, "device",
                       formatted("device: {} gave CUDA error {}", what, code));
}

}  // namespace seriatim::device
