// The module's driver over CUDA's driver interface, and what its devices are and promise.

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "base/format.hpp"
#include "device/cuda_calls.hpp"

namespace seriatim::device {
namespace {

// The device's context is current while this lives, whatever the calling thread had.
class Current {
 public:
  Current(const CudaCalls& calls, CuContext context) : calls_(calls), code_(calls.push_context(context)) {}
  ~Current() {
    CuContext popped = nullptr;
    if (code_ == 0) calls_.pop_context(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  // Runs the call if the context could be made current.
  template <typename Call>
  Status run(const char* what, const Call& call) const {
    return check_cuda(code_ == 0 ? call() : code_, what);
  }

 private:
  const CudaCalls& calls_;
  const CuResult code_;
};

class CudaDriver final : public Driver {
 public:
  CudaDriver(const CudaCalls& calls, const NvrtcCalls& compiler, CuDevice device, std::string architecture)
      : calls_(calls), compiler_(compiler), device_(device), architecture_(std::move(architecture)) {}
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  ~CudaDriver() override {
    if (context_ == nullptr) return;
    {
      const Current current(calls_, context_);
      if (stream_ != nullptr) calls_.wait_for_stream(stream_);
      for (const CuModule module : modules_) calls_.unload_module(module);
      if (stream_ != nullptr) calls_.destroy_stream(stream_);
    }
    calls_.release_context(device_);
  }

  // The primary context: the one that other CUDA code of the process has too, so that memory could be shared with it.
  Status open() {
    if (Status s = check_cuda(calls_.retain_context(&context_, device_), "making a context"); !s.ok()) {
      context_ = nullptr;
      return s;
    }
    constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING: does not wait for others' default stream
    return within("making a queue", [&] { return calls_.make_stream(&stream_, kNonBlocking); });
  }

  Result<Memory> take(std::int64_t bytes) override {
    CuPointer memory = 0;
    if (Status s = within("taking memory", [&] { return calls_.take(&memory, static_cast<std::size_t>(bytes)); });
        !s.ok())
      return s;
    return static_cast<Memory>(memory);
  }
  void release(Memory memory) noexcept override {
    (void)within("releasing memory", [&] { return calls_.release(memory); });
  }
  Result<std::byte*> take_host(std::int64_t bytes) override {
    void* memory = nullptr;
    if (Status s = within("taking the host's memory",
                          [&] { return calls_.take_host(&memory, static_cast<std::size_t>(bytes)); });
        !s.ok())
      return s;
    return static_cast<std::byte*>(memory);
  }
  void release_host(std::byte* memory) noexcept override {
    (void)within("releasing the host's memory", [&] { return calls_.release_host(memory); });
  }

  Result<Kernels> build(const Build& what) override {
    const auto compiled = compile(compiler_, what, architecture_.c_str());
    if (!compiled.ok()) return compiled.status();
    CuModule module = nullptr;
    if (Status s = within("loading the kernels", [&] { return calls_.load_module(&module, compiled->code.data()); });
        !s.ok())
      return s;
    modules_.push_back(module);  // unloaded with the driver, also where a kernel is missing
    Kernels made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      CuFunction function = nullptr;
      if (Status s = within("making a kernel", [&] { return calls_.function(&function, module, kKernelNames[i]); });
          !s.ok())
        return s;
      made[i] = reinterpret_cast<KernelHandle>(function);
    }
    return made;
  }

  Status write(Memory to, std::int64_t offset, const void* from, std::int64_t bytes) override {
    return within("writing", [&] {
      return calls_.write(to + static_cast<CuPointer>(offset), from, static_cast<std::size_t>(bytes), stream_);
    });
  }
  Status read(Memory from, void* to, std::int64_t bytes) override {
    return within("reading", [&] { return calls_.read(to, from, static_cast<std::size_t>(bytes), stream_); });
  }
  Status copy(Memory from, Memory to, std::int64_t bytes) override {
    return within("copying", [&] { return calls_.copy(to, from, static_cast<std::size_t>(bytes), stream_); });
  }

  Status launch(KernelHandle kernel, const char* name, Grid grid, std::int64_t work_group,
                std::span<const Argument> arguments) override {
    constexpr std::size_t kMostArguments = 16;
    std::array<void*, kMostArguments> parameters{};
    if (arguments.size() > parameters.size())
      return Status::error(Code::kInvalidArgument, "device",
                           formatted("device: {} arguments for {}", arguments.size(), name));
    for (std::size_t i = 0; i < arguments.size(); ++i)
      parameters[i] = const_cast<void*>(arguments[i].value);  // read alone
    return within(name, [&] {
      return calls_.launch(reinterpret_cast<CuFunction>(kernel), static_cast<unsigned>(grid.x),
                           static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z),
                           static_cast<unsigned>(work_group), 1, 1, 0, stream_, parameters.data(), nullptr);
    });
  }

  Status flush() override { return {}; }  // CUDA starts what is enqueued by itself
  Status finish() override {
    return within("waiting", [&] { return calls_.wait_for_stream(stream_); });
  }

 private:
  template <typename Call>
  Status within(const char* what, const Call& call) const {
    return Current(calls_, context_).run(what, call);
  }

  const CudaCalls calls_;  // copies: a test's tables may be gone before the device
  const NvrtcCalls compiler_;
  const CuDevice device_;
  const std::string architecture_;
  CuContext context_ = nullptr;
  CuStream stream_ = nullptr;
  std::vector<CuModule> modules_;
};

Result<std::unique_ptr<Driver>> open_cuda(const CudaCalls& calls, const NvrtcCalls& compiler, CuDevice device,
                                          std::string architecture) {
  auto driver = std::make_unique<CudaDriver>(calls, compiler, device, std::move(architecture));
  if (Status s = driver->open(); !s.ok()) return s;
  return std::unique_ptr<Driver>(std::move(driver));
}

struct Described {
  CuDevice device = 0;
  std::string architecture;
  DeviceInfo info;
};

// What CUDA's programming guide promises of every device of compute capability 2.0 and later.
void promise_arithmetic(DeviceInfo& info) {
  info.doubles = info.fma = info.division = info.subnormals = info.rounds = true;
}

Result<std::vector<Described>> describe_all(const CudaCalls& calls) {
  const CuResult began = calls.init(0);
  if (began == kCuNoDevice) return std::vector<Described>{};
  if (Status s = check_cuda(began, "starting the driver"); !s.ok()) return s;
  int count = 0;
  int version = 0;
  if (Status s = check_cuda(calls.device_count(&count), "listing devices"); !s.ok()) return s;
  if (Status s = check_cuda(calls.version(&version), "asking the driver's version"); !s.ok()) return s;
  std::vector<Described> all;
  for (int number = 0; number < count; ++number) {
    Described one;
    std::array<char, 256> product{};
    std::size_t memory = 0;
    int major = 0;
    int minor = 0;
    CuResult code = calls.device(&one.device, number);
    if (code == 0) code = calls.device_name(product.data(), static_cast<int>(product.size() - 1), one.device);
    if (code == 0) code = calls.device_memory(&memory, one.device);
    if (code == 0) code = calls.device_attribute(&major, kCuComputeMajor, one.device);
    if (code == 0) code = calls.device_attribute(&minor, kCuComputeMinor, one.device);
    if (Status s = check_cuda(code, "describing a device"); !s.ok()) return s;
    one.architecture = formatted("sm_{}{}", major, minor);
    one.info.name = formatted("cuda:{}", number);
    one.info.product = product.data();
    one.info.driver =
        formatted("CUDA {}.{}, compute capability {}.{}", version / 1000, version % 1000 / 10, major, minor);
    if (major >= 2) promise_arithmetic(one.info);
    one.info.memory_bytes = one.info.largest_buffer_bytes = static_cast<std::int64_t>(memory);
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

// A machine without the compiler lists its devices; opening one says what is missing.
Result<std::vector<Listed>> find_devices(const CudaCalls& calls, FindCompiler find_compiler) {
  const auto described = describe_all(calls);
  if (!described.ok()) return described.status();
  std::vector<Listed> found;
  for (const Described& one : *described) {
    found.push_back({one.info, [calls, find_compiler, one]() -> Result<std::unique_ptr<Driver>> {
                       const auto compiler = find_compiler();
                       if (!compiler.ok()) return compiler.status();
                       return open_cuda(calls, **compiler, one.device, one.architecture);
                     }});
  }
  return found;
}

}  // namespace seriatim::device
