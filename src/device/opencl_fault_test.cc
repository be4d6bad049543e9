// A driver that refuses, loses or lacks something: what the module says, and that nothing else changes.
#include <gtest/gtest.h>

#include "device/opencl_calls.hpp"
#include "support/device_faults.hpp"

namespace seriatim::testing {
namespace {

using device::OpenClCalls;

Result<std::shared_ptr<Device>> open_by(const OpenClCalls& calls, std::string_view name, const DeviceOptions& options,
                                        const char* text = nullptr) {
  const auto found = device::find_devices(calls);
  if (!found.ok()) return found.status();
  return device::open_one(*found, name, options, text);
}

// Only an OpenCL driver will do here.
#define SERIATIM_SKIP_WITHOUT_OPENCL() \
  if (no_opencl()) GTEST_SKIP() << "no OpenCL device on this machine"

bool no_opencl() {
  const auto calls = device::installed_opencl();
  const auto found = calls.ok() ? device::find_devices(**calls) : Result<std::vector<device::Listed>>(calls.status());
  return (!found.ok() || found->empty()) && std::getenv("SERIATIM_NEED_DEVICE") == nullptr;
}

// The installed driver, whose `left`th call of the counted ones fails. One at a time.
OpenClCalls real;
std::int64_t left = 0;  // 0: none fails
std::int64_t buffers_made = 0;
cl_device_fp_config without = 0;  // taken from what the device promises of f32

bool fails_now() { return left > 0 && --left == 0; }

template <typename Handle>
Handle refused(cl_int* code) {
  *code = CL_OUT_OF_HOST_MEMORY;
  return nullptr;
}

#define SERIATIM_FAULTY(name) \
  table.name = [](auto... arguments) -> cl_int { return fails_now() ? CL_OUT_OF_RESOURCES : real.name(arguments...); }

OpenClCalls faulty_calls() {
  real = **device::installed_opencl();
  left = 0;
  without = 0;
  OpenClCalls table = real;
  SERIATIM_FAULTY(clEnqueueWriteBuffer);
  SERIATIM_FAULTY(clEnqueueReadBuffer);
  SERIATIM_FAULTY(clEnqueueNDRangeKernel);
  SERIATIM_FAULTY(clSetKernelArg);
  SERIATIM_FAULTY(clFinish);
  SERIATIM_FAULTY(clFlush);
  table.clCreateBuffer = [](cl_context context, cl_mem_flags flags, std::size_t bytes, void* host,
                            cl_int* code) -> cl_mem {
    ++buffers_made;
    if (fails_now()) {
      *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
      return nullptr;
    }
    return real.clCreateBuffer(context, flags, bytes, host, code);
  };
  SERIATIM_FAULTY(clBuildProgram);
  table.clCreateContext = [](const cl_context_properties* properties, cl_uint devices, const cl_device_id* ids,
                             void(CL_CALLBACK * notify)(const char*, const void*, std::size_t, void*), void* data,
                             cl_int* code) -> cl_context {
    return fails_now() ? refused<cl_context>(code) : real.clCreateContext(properties, devices, ids, notify, data, code);
  };
  table.clCreateCommandQueue = [](cl_context context, cl_device_id id, cl_command_queue_properties properties,
                                  cl_int* code) -> cl_command_queue {
    return fails_now() ? refused<cl_command_queue>(code) : real.clCreateCommandQueue(context, id, properties, code);
  };
  table.clCreateProgramWithSource = [](cl_context context, cl_uint count, const char** texts,
                                       const std::size_t* lengths, cl_int* code) -> cl_program {
    return fails_now() ? refused<cl_program>(code)
                       : real.clCreateProgramWithSource(context, count, texts, lengths, code);
  };
  table.clCreateKernel = [](cl_program program, const char* name, cl_int* code) -> cl_kernel {
    return fails_now() ? refused<cl_kernel>(code) : real.clCreateKernel(program, name, code);
  };
  table.clGetDeviceInfo = [](cl_device_id id, cl_device_info what, std::size_t bytes, void* value,
                             std::size_t* size) -> cl_int {
    const cl_int code = real.clGetDeviceInfo(id, what, bytes, value, size);
    if (code == CL_SUCCESS && what == CL_DEVICE_SINGLE_FP_CONFIG && value != nullptr)
      *static_cast<cl_device_fp_config*>(value) &= ~without;
    return code;
  };
  return table;
}

TEST(DeviceFault, AnyFailedCallLeavesOutputsAndTheHeldStateAndTheNextTryIsRight) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  std::int64_t failures = 0;
  fail_every_call_of_a_step(DeviceStory::must(open_by(calls, "opencl", {})), left, failures);
  EXPECT_GT(failures, 40);
}

TEST(DeviceFault, OpeningBuildingAndTakingMemoryFailCleanlyAtEveryCall) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  std::int64_t failures = 0;
  fail_every_call_of_opening([&] { return open_by(calls, "opencl", {}); }, [](std::int64_t) {}, left, failures);
  EXPECT_GT(failures, 30);
}

TEST(DeviceFault, AStepTakesNoDeviceMemory) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  const Story story(small_path(), 200, 32);
  DeviceStory held(story, DeviceStory::must(open_by(calls, "opencl", {})));
  held.append(100);
  ASSERT_TRUE(held.follow().ok());
  const std::int64_t before = buffers_made;
  EXPECT_GT(before, 10);
  for (std::int64_t t = 100; t < 200; ++t) {
    held.append(1);
    Answers answers(story.geometry, 1);
    ASSERT_TRUE(held.ask(every_token(t, 1), answers).ok());
  }
  EXPECT_EQ(buffers_made, before);
}

TEST(DeviceFault, MemoryThatTheDeviceRefusesIsOutOfMemory) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  const auto opened = DeviceStory::must(open_by(calls, "opencl", {}));
  const Geometry geometry = *Geometry::admit(small_path());
  std::int64_t refused = 0;
  for (std::int64_t nth = 1; nth <= 15; ++nth) {
    left = nth;
    refused +=
        fails_with(DeviceWorkspace::create(opened, geometry, 1000, 4).status(), Code::kOutOfMemory, "device") ? 1 : 0;
  }
  left = 1;
  EXPECT_TRUE(fails_with(DeviceMemory::create(opened, 1 << 20).status(), Code::kOutOfMemory, "device"));
  left = 0;
  EXPECT_EQ(refused, 15);
  EXPECT_TRUE(fails_with(DeviceMemory::create(opened, std::int64_t{1} << 60).status(), Code::kOutOfMemory, "device"));
  EXPECT_TRUE(fails_with(DeviceMemory::create(opened, 0).status(), Code::kInvalidArgument, "bytes"));
  EXPECT_TRUE(DeviceWorkspace::create(opened, geometry, 1000, 4).ok());
}

TEST(DeviceFault, KernelsThatDoNotBuildGiveTheBuildLog) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  const auto opened = open_by(calls, "opencl", {}, "__kernel void broken(__global int* x) { x[0] = no_such_name; }\n");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Status status = DeviceWorkspace::create(*opened, *Geometry::admit(small_path()), 100, 1).status();
  EXPECT_TRUE(fails_with(status, Code::kUnsupported, "device"));
  EXPECT_NE(status.message().find("no_such_name"), std::string_view::npos) << status.message();
}

TEST(DeviceFault, ADeviceThatDoesNotPromiseTheArithmeticIsRefusedByName) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const OpenClCalls calls = faulty_calls();
  without = CL_FP_FMA;
  const Status status = open_by(calls, "opencl:0", {}).status();
  EXPECT_TRUE(fails_with(status, Code::kUnsupported, "device"));
  EXPECT_NE(status.message().find("opencl:0"), std::string_view::npos) << status.message();
  EXPECT_NE(status.message().find("fused multiply-add"), std::string_view::npos) << status.message();
  EXPECT_TRUE(open_by(calls, "opencl:0", {.accept_other_bits = true}).ok());
  without = 0;
  EXPECT_TRUE(open_by(calls, "opencl:0", {}).ok());
}

TEST(DeviceFault, AnUnknownNameListsWhatThereIs) {
  SERIATIM_SKIP_WITHOUT_OPENCL();
  const Status status = Device::open("nope").status();
  EXPECT_TRUE(fails_with(status, Code::kNotFound, "device"));
  EXPECT_NE(status.message().find("opencl:0"), std::string_view::npos) << status.message();
  EXPECT_TRUE(fails_with(Device::open("opencl", {.work_group = 4096}).status(), Code::kInvalidArgument, "work_group"));
}

TEST(DeviceFault, NoDriverIsAnEmptyListAndNothingToOpen) {
  OpenClCalls calls;
  calls.clGetPlatformIDs = [](cl_uint, cl_platform_id*, cl_uint* count) -> cl_int {
    if (count != nullptr) *count = 0;
    return -1001;
  };
  const auto found = device::find_devices(calls);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
  EXPECT_TRUE(fails_with(open_by(calls, "opencl", {}).status(), Code::kNotFound, "device"));
}

}  // namespace
}  // namespace seriatim::testing
