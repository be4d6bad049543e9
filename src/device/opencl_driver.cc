// The module's driver over OpenCL.

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "device/opencl_calls.hpp"

namespace seriatim::device {
namespace {

constexpr std::align_val_t kHostAlignment{64};

cl_mem as_mem(Memory memory) { return reinterpret_cast<cl_mem>(memory); }

class OpenClDriver final : public Driver {
 public:
  OpenClDriver(const OpenClCalls& calls, cl_device_id id, bool promises_division)
      : calls_(calls), id_(id), promises_division_(promises_division) {}
  OpenClDriver(const OpenClDriver&) = delete;
  OpenClDriver& operator=(const OpenClDriver&) = delete;

  ~OpenClDriver() override {
    if (queue_ != nullptr) calls_.clFinish(queue_);
    for (const cl_kernel kernel : kernels_) calls_.clReleaseKernel(kernel);
    for (const cl_program program : programs_) calls_.clReleaseProgram(program);
    if (queue_ != nullptr) calls_.clReleaseCommandQueue(queue_);
    if (context_ != nullptr) calls_.clReleaseContext(context_);
  }

  Status open() {
    cl_int code = CL_SUCCESS;
    context_ = calls_.clCreateContext(nullptr, 1, &id_, nullptr, nullptr, &code);
    if (Status s = check(code, "making a context"); !s.ok()) return s;
    queue_ = calls_.clCreateCommandQueue(context_, id_, 0, &code);
    return check(code, "making a queue");
  }

  Result<Memory> take(std::int64_t bytes) override {
    cl_int code = CL_SUCCESS;
    const cl_mem memory =
        calls_.clCreateBuffer(context_, CL_MEM_READ_WRITE, static_cast<std::size_t>(bytes), nullptr, &code);
    if (Status s = check(code, "taking memory"); !s.ok()) return s;
    return reinterpret_cast<Memory>(memory);
  }
  void release(Memory memory) noexcept override { calls_.clReleaseMemObject(as_mem(memory)); }

  // OpenCL 1.2 has no host memory of its own that is more than a mapped buffer.
  Result<std::byte*> take_host(std::int64_t bytes) override {
    void* memory = ::operator new(static_cast<std::size_t>(bytes), kHostAlignment, std::nothrow);
    if (memory == nullptr)
      return Status::error(Code::kOutOfMemory, "device", formatted("device: the system refused {} bytes", bytes));
    return static_cast<std::byte*>(memory);
  }
  void release_host(std::byte* memory) noexcept override { ::operator delete(memory, kHostAlignment); }

  Result<Kernels> build(const Build& what) override {
    cl_int code = CL_SUCCESS;
    const char* text = what.text;
    const cl_program program = calls_.clCreateProgramWithSource(context_, 1, &text, nullptr, &code);
    if (Status s = check(code, "taking the kernels' text"); !s.ok()) return s;
    programs_.push_back(program);  // released with the driver, also where it does not build
    const std::string options =
        formatted("-cl-std=CL1.2{} -D WORK_GROUP={} -D KV_DTYPE={} -D INDEX_DTYPE={}",
                  promises_division_ ? " -cl-fp32-correctly-rounded-divide-sqrt" : "", what.work_group,
                  static_cast<int>(what.kv_dtype), static_cast<int>(what.index_dtype));
    code = calls_.clBuildProgram(program, 1, &id_, options.c_str(), nullptr, nullptr);
    if (code == CL_BUILD_PROGRAM_FAILURE)
      return Status::error(Code::kUnsupported, "device",
                           formatted("device: the kernels do not build: {}", log_of(program)));
    if (Status s = check(code, "building the kernels"); !s.ok()) return s;
    Kernels made{};
    for (std::size_t i = 0; i < made.size(); ++i) {
      const cl_kernel kernel = calls_.clCreateKernel(program, kKernelNames[i], &code);
      if (Status s = check(code, "making a kernel"); !s.ok()) return s;
      kernels_.push_back(kernel);
      made[i] = reinterpret_cast<KernelHandle>(kernel);
    }
    return made;
  }

  Status write(Memory to, std::int64_t offset, const void* from, std::int64_t bytes) override {
    return check(calls_.clEnqueueWriteBuffer(queue_, as_mem(to), CL_FALSE, static_cast<std::size_t>(offset),
                                             static_cast<std::size_t>(bytes), from, 0, nullptr, nullptr),
                 "writing");
  }
  Status read(Memory from, void* to, std::int64_t bytes) override {
    return check(calls_.clEnqueueReadBuffer(queue_, as_mem(from), CL_FALSE, 0, static_cast<std::size_t>(bytes), to, 0,
                                            nullptr, nullptr),
                 "reading");
  }
  Status copy(Memory from, Memory to, std::int64_t bytes) override {
    return check(calls_.clEnqueueCopyBuffer(queue_, as_mem(from), as_mem(to), 0, 0, static_cast<std::size_t>(bytes), 0,
                                            nullptr, nullptr),
                 "copying");
  }

  Status launch(KernelHandle handle, const char* name, Grid grid, std::int64_t work_group,
                std::span<const Argument> arguments) override {
    const auto kernel = reinterpret_cast<cl_kernel>(handle);
    for (cl_uint i = 0; i < arguments.size(); ++i) {
      if (Status s = check(calls_.clSetKernelArg(kernel, i, arguments[i].bytes, arguments[i].value), name); !s.ok())
        return s;
    }
    const std::array<std::size_t, 3> local{static_cast<std::size_t>(work_group), 1, 1};
    const std::array<std::size_t, 3> global{static_cast<std::size_t>(grid.x * work_group),
                                            static_cast<std::size_t>(grid.y), static_cast<std::size_t>(grid.z)};
    return check(
        calls_.clEnqueueNDRangeKernel(queue_, kernel, 3, nullptr, global.data(), local.data(), 0, nullptr, nullptr),
        name);
  }

  Status flush() override { return check(calls_.clFlush(queue_), "starting"); }
  Status finish() override { return check(calls_.clFinish(queue_), "waiting"); }

 private:
  // From the first error on: a message is short.
  std::string log_of(cl_program program) const {
    std::string log(16384, '\0');
    if (calls_.clGetProgramBuildInfo(program, id_, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr) != CL_SUCCESS)
      return "the driver gives no log";
    log.resize(std::min(log.find('\0'), log.size()));
    const std::size_t error = log.find("error:");
    return error == std::string::npos ? log : log.substr(error);
  }

  const OpenClCalls calls_;  // a copy: a test's table may be gone before the device
  const cl_device_id id_;
  const bool promises_division_;
  cl_context context_ = nullptr;
  cl_command_queue queue_ = nullptr;
  std::vector<cl_program> programs_;
  std::vector<cl_kernel> kernels_;
};

}  // namespace

Result<std::unique_ptr<Driver>> open_opencl(const OpenClCalls& calls, cl_device_id id, bool promises_division) {
  auto driver = std::make_unique<OpenClDriver>(calls, id, promises_division);
  if (Status s = driver->open(); !s.ok()) return s;
  return std::unique_ptr<Driver>(std::move(driver));
}

}  // namespace seriatim::device
