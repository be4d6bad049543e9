#include "device/emulated/cuda.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "device/emulated/lanes.hpp"
#include "device/emulated/module.hpp"
#include "device/kernel_text.hpp"

namespace seriatim::testing {

EmulatedModule emulated_f32();
EmulatedModule emulated_bf16();
EmulatedModule emulated_f16();
EmulatedModule emulated_bf16_f32();
EmulatedModule emulated_bf16_1();
EmulatedModule emulated_bf16_7();

namespace {

using namespace seriatim::device;

constexpr CuResult kInvalidValue = 1;
constexpr CuResult kInvalidContext = 201;
constexpr CuResult kLaunchFailed = 719;

int context_object = 0;
int current_depth = 0;
std::map<std::byte*, std::size_t> pinned;
std::vector<std::function<CuResult()>> enqueued;

const std::vector<EmulatedModule>& modules() {
  static const std::vector<EmulatedModule> all{emulated_f32(),      emulated_bf16(),   emulated_f16(),
                                               emulated_bf16_f32(), emulated_bf16_1(), emulated_bf16_7()};
  return all;
}

bool is_pinned(const void* memory) {
  const auto* at = static_cast<const std::byte*>(memory);
  const auto after = pinned.upper_bound(const_cast<std::byte*>(at));
  return after != pinned.begin() && at < std::prev(after)->first + std::prev(after)->second;
}

// How a call ends before it does anything: 0, or an error.
CuResult begun(bool needs_context = true) {
  CudaFaults& faults = cuda_faults();
  if (faults.lost) return kLaunchFailed;
  if (needs_context && current_depth == 0) return kInvalidContext;
  return faults.left > 0 && --faults.left == 0 ? kCuOutOfMemory : 0;
}

CuResult run_all() {
  for (const auto& one : std::exchange(enqueued, {})) {
    if (const CuResult code = one(); code != 0) {
      cuda_faults().lost = true;
      return code;
    }
  }
  return 0;
}

std::byte* at(CuPointer memory) { return reinterpret_cast<std::byte*>(memory); }

CuResult write(CuPointer to, const void* from, std::size_t bytes, CuStream) {
  if (const CuResult code = begun(); code != 0) return code;
  std::vector<std::byte> now;
  if (!is_pinned(from)) now.assign(static_cast<const std::byte*>(from), static_cast<const std::byte*>(from) + bytes);
  enqueued.push_back([to, from, bytes, now] {
    std::memcpy(at(to), now.empty() ? from : now.data(), bytes);
    return 0;
  });
  return 0;
}

CuResult read(void* to, CuPointer from, std::size_t bytes, CuStream) {
  if (const CuResult code = begun(); code != 0) return code;
  enqueued.push_back([to, from, bytes] {
    std::memcpy(to, at(from), bytes);
    return 0;
  });
  return is_pinned(to) ? 0 : run_all();
}

CuResult launch(CuFunction function, unsigned x, unsigned y, unsigned z, unsigned lanes, unsigned, unsigned, unsigned,
                CuStream, void** parameters, void**) {
  if (const CuResult code = begun(); code != 0) return code;
  if (x == 0 || y == 0 || z == 0 || y > 65535 || z > 65535 || lanes == 0 || lanes > 1024) return kInvalidValue;
  const auto& kernel = *static_cast<const EmulatedKernel*>(function);
  std::vector<std::vector<std::byte>> copies;
  for (std::size_t i = 0; i < kernel.parameter_bytes.size(); ++i) {
    const auto* from = static_cast<const std::byte*>(parameters[i]);
    copies.emplace_back(from, from + kernel.parameter_bytes[i]);
  }
  enqueued.push_back([&kernel, x, y, z, lanes, copies]() mutable {
    std::vector<void*> pointers;
    for (auto& copy : copies) pointers.push_back(copy.data());
    return run_lanes({x, y, z}, lanes, [&] { kernel.run(pointers.data()); }) ? 0 : kLaunchFailed;
  });
  return 0;
}

CuResult give_back(CuResult code) {
  if (code == 0) --cuda_faults().held;
  return code;
}

// Giving back works whatever has failed before, as a program's end must.
CuResult release_host(void* memory) {
  (void)run_all();  // freeing waits
  pinned.erase(static_cast<std::byte*>(memory));
  std::free(memory);
  return give_back(0);
}

CuResult take_host(void** memory, std::size_t bytes) {
  if (const CuResult code = begun(); code != 0) return code;
  auto* taken = static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
  if (taken == nullptr) return kCuOutOfMemory;
  pinned[taken] = bytes;
  ++cuda_faults().held;
  *memory = taken;
  return 0;
}

CuResult take(CuPointer* memory, std::size_t bytes) {
  if (const CuResult code = begun(); code != 0) return code;
  void* const taken = bytes > (std::size_t{8} << 30) ? nullptr : std::malloc(bytes);
  if (taken == nullptr) return kCuOutOfMemory;
  std::memset(taken, 0xa5, bytes < 4096 ? bytes : 4096);  // nothing may count on zeros
  *memory = reinterpret_cast<CuPointer>(taken);
  ++cuda_faults().held;
  ++cuda_faults().buffers_made;
  return 0;
}

CuResult find_function(CuFunction* function, CuModule module, const char* name) {
  if (const CuResult code = begun(); code != 0) return code;
  for (const EmulatedKernel& kernel : static_cast<const EmulatedModule*>(module)->kernels) {
    if (std::string_view(kernel.name) == name) *function = const_cast<EmulatedKernel*>(&kernel);
  }
  return 0;
}

// A "program" is its text; its "code" the name of the module that was compiled beforehand from the same text.
struct Source {
  std::string text;
  std::string log;
  std::size_t module = 0;
};

NvrtcResult compile_source(NvrtcProgram program, int count, const char* const* options) {
  if (cuda_faults().left > 0 && --cuda_faults().left == 0) return 1;
  auto& source = *static_cast<Source*>(program);
  if (source.text != kKernelText) {
    source.log = "seriatim.cu(1): error: the emulation knows the library's text alone, not this: " + source.text;
    return kNvrtcCompilation;
  }
  const auto given = [&](const std::string& option) {
    for (int i = 0; i < count; ++i) {
      if (option == options[i]) return true;
    }
    return false;
  };
  for (const char* must :
       {"--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false", "--gpu-architecture=sm_90"}) {
    if (!given(must)) {
      source.log = std::string("error: without ") + must + " the bits would be others";
      return kNvrtcCompilation;
    }
  }
  for (std::size_t i = 0; i < modules().size(); ++i) {
    const EmulatedModule& one = modules()[i];
    if (given("-DWORK_GROUP=" + std::to_string(one.work_group)) &&
        given("-DKV_DTYPE=" + std::to_string(one.kv_dtype)) &&
        given("-DINDEX_DTYPE=" + std::to_string(one.index_dtype))) {
      source.module = i;
      return 0;
    }
  }
  source.log = "error: the emulation was not built for these dtypes and lanes";
  return kNvrtcCompilation;
}

NvrtcCalls nvrtc() {
  NvrtcCalls calls;
  calls.create = [](NvrtcProgram* program, const char* text, const char*, int, const char* const*,
                    const char* const*) -> NvrtcResult {
    if (cuda_faults().left > 0 && --cuda_faults().left == 0) return 1;
    *program = new Source{text, "", 0};
    ++cuda_faults().held;
    return 0;
  };
  calls.destroy = [](NvrtcProgram* program) -> NvrtcResult {
    delete static_cast<Source*>(std::exchange(*program, nullptr));
    return give_back(0);
  };
  calls.compile = compile_source;
  calls.log_size = [](NvrtcProgram program, std::size_t* bytes) -> NvrtcResult {
    *bytes = static_cast<Source*>(program)->log.size() + 1;
    return 0;
  };
  calls.log = [](NvrtcProgram program, char* log) -> NvrtcResult {
    std::strcpy(log, static_cast<Source*>(program)->log.c_str());
    return 0;
  };
  calls.cubin_size = calls.ptx_size = [](NvrtcProgram, std::size_t* bytes) -> NvrtcResult {
    *bytes = sizeof(std::size_t);
    return 0;
  };
  calls.cubin = calls.ptx = [](NvrtcProgram program, char* code) -> NvrtcResult {
    std::memcpy(code, &static_cast<Source*>(program)->module, sizeof(std::size_t));
    return 0;
  };
  return calls;
}

void add_devices(CudaCalls& calls) {
  calls.init = [](unsigned) -> CuResult { return cuda_faults().no_device ? kCuNoDevice : 0; };
  calls.version = [](int* version) -> CuResult { return *version = 13000, 0; };
  calls.device_count = [](int* count) -> CuResult { return *count = 1, 0; };
  calls.device = [](CuDevice* device, int number) -> CuResult { return *device = number, 0; };
  calls.device_name = [](char* name, int, CuDevice) -> CuResult { return std::strcpy(name, "an emulation"), 0; };
  calls.device_memory = [](std::size_t* bytes, CuDevice) -> CuResult { return *bytes = std::size_t{8} << 30, 0; };
  calls.device_attribute = [](int* value, int attribute, CuDevice) -> CuResult {
    return *value = attribute == kCuComputeMajor ? 9 : 0, 0;
  };
}

}  // namespace

CudaFaults& cuda_faults() {
  static CudaFaults faults;
  return faults;
}

CudaCalls emulated_cuda() {
  CudaCalls calls;
  add_devices(calls);
  calls.retain_context = [](CuContext* context, CuDevice) -> CuResult {
    if (const CuResult code = begun(false); code != 0) return code;
    ++cuda_faults().held;
    return *context = &context_object, 0;
  };
  calls.release_context = [](CuDevice) -> CuResult { return give_back(0); };
  calls.push_context = [](CuContext context) -> CuResult {
    return context == &context_object ? (++current_depth, 0) : kInvalidContext;
  };
  calls.pop_context = [](CuContext*) -> CuResult { return --current_depth, 0; };
  calls.make_stream = [](CuStream* stream, unsigned) -> CuResult {
    if (const CuResult code = begun(); code != 0) return code;
    ++cuda_faults().held;
    return *stream = &enqueued, 0;
  };
  calls.destroy_stream = [](CuStream) -> CuResult { return give_back(0); };
  calls.wait_for_stream = [](CuStream) -> CuResult {
    const CuResult code = begun();
    return code != 0 ? code : run_all();
  };
  calls.take = take;
  calls.release = [](CuPointer memory) -> CuResult {
    (void)run_all();  // freeing waits
    std::free(at(memory));
    return give_back(0);
  };
  calls.take_host = take_host;
  calls.release_host = release_host;
  calls.write = write;
  calls.read = read;
  calls.copy = [](CuPointer to, CuPointer from, std::size_t bytes, CuStream) -> CuResult {
    if (const CuResult code = begun(); code != 0) return code;
    enqueued.push_back([to, from, bytes] { return std::memmove(at(to), at(from), bytes), 0; });
    return 0;
  };
  calls.load_module = [](CuModule* module, const void* image) -> CuResult {
    if (const CuResult code = begun(); code != 0) return code;
    std::size_t which = 0;
    std::memcpy(&which, image, sizeof which);
    ++cuda_faults().held;
    return *module = const_cast<EmulatedModule*>(&modules()[which]), 0;
  };
  calls.unload_module = [](CuModule) -> CuResult { return give_back(0); };
  calls.function = find_function;
  calls.launch = launch;
  return calls;
}

Result<const NvrtcCalls*> emulated_nvrtc() {
  static const NvrtcCalls calls = nvrtc();
  if (cuda_faults().no_compiler)
    return Status::error(Code::kUnsupported, "device", "device: this machine has no CUDA run-time compiler");
  return &calls;
}

Result<std::shared_ptr<Device>> open_emulated(std::int64_t work_group, const char* kernel_text) {
  const auto found = find_devices(emulated_cuda(), emulated_nvrtc);
  if (!found.ok()) return found.status();
  return open_one(*found, "cuda", {.work_group = work_group}, kernel_text);
}

}  // namespace seriatim::testing
