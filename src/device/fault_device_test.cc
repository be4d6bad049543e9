// A driver that refuses, loses or lacks something: what the room says, and that nothing else changes.
#include <gtest/gtest.h>

#include "device/device_testing.hpp"

namespace seriatim::testing {
namespace {

using device::OpenClCalls;

// The installed driver, whose `left`th call of the counted ones fails. One at a time.
OpenClCalls real;
std::int64_t left = 0;          // 0: none fails
std::int64_t buffers_made = 0;
cl_device_fp_config without = 0;  // taken from what the device promises of f32

bool fails_now() { return left > 0 && --left == 0; }

#define SERIATIM_FAULTY(name) \
  table.name = [](auto... arguments) -> cl_int { return fails_now() ? CL_OUT_OF_RESOURCES : real.name(arguments...); }

OpenClCalls faulty_calls() {
  real = **device::installed_calls();
  left = 0;
  without = 0;
  OpenClCalls table = real;
  SERIATIM_FAULTY(clEnqueueWriteBuffer);
  SERIATIM_FAULTY(clEnqueueReadBuffer);
  SERIATIM_FAULTY(clEnqueueNDRangeKernel);
  SERIATIM_FAULTY(clSetKernelArg);
  SERIATIM_FAULTY(clFinish);
  SERIATIM_FAULTY(clFlush);
  table.clCreateBuffer = [](cl_context context, cl_mem_flags flags, std::size_t bytes, void* host, cl_int* code) -> cl_mem {
    ++buffers_made;
    if (fails_now()) {
      *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
      return nullptr;
    }
    return real.clCreateBuffer(context, flags, bytes, host, code);
  };
  table.clGetDeviceInfo = [](cl_device_id id, cl_device_info what, std::size_t bytes, void* value, std::size_t* size) -> cl_int {
    const cl_int code = real.clGetDeviceInfo(id, what, bytes, value, size);
    if (code == CL_SUCCESS && what == CL_DEVICE_SINGLE_FP_CONFIG && value != nullptr) *static_cast<cl_device_fp_config*>(value) &= ~without;
    return code;
  };
  return table;
}

TEST(DeviceFault, AnyFailedCallLeavesOutputsAndTheHeldStateAndTheNextTryIsRight) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const OpenClCalls calls = faulty_calls();
  const Story story(small_path(), 160, 31);
  const Answers host = one_call(story);
  DeviceStory held(story, DeviceStory::must(device::open_by(calls, "opencl", {})));
  held.append(100);
  auto transaction = DeviceStory::must(held.cache().begin());
  ASSERT_TRUE(transaction.append(held.id(), 0, story.batch(100, 60)).ok());
  const LayerView staged = *transaction.layer(held.id(), 0);
  const auto step = [&](Answers& answers) -> Status {
    if (Status s = held.sequence().follow(held.snapshot()); !s.ok()) return s;
    if (Status s = held.sequence().stage(0, staged); !s.ok()) return s;
    return held.ask(every_token(100, 60), answers);
  };
  std::int64_t failures = 0;
  for (std::int64_t nth = 1;; ++nth) {
    Answers failed(story.geometry, 60);
    left = nth;
    const Status status = step(failed);
    const bool fired = left == 0;
    left = 0;
    if (!fired) {
      EXPECT_TRUE(status.ok()) << status.message();
      break;
    }
    ++failures;
    ASSERT_TRUE(fails_with(status, Code::kOutOfMemory, "device")) << nth;
    ASSERT_TRUE(failed.rows_untouched() && failed.outputs_untouched()) << nth;
    // The published state still serves, by what the device holds of it or by sending it again.
    ASSERT_TRUE(held.sequence().follow(held.snapshot()).ok()) << nth;
    Answers before(story.geometry, 10);
    ASSERT_TRUE(held.ask(every_token(90, 10), before).ok()) << nth;
    for (std::int64_t i = 0; i < 10; ++i) ASSERT_TRUE(same_bits(before.of(i), host.of(90 + i))) << nth;
    Answers again(story.geometry, 60);
    ASSERT_TRUE(step(again).ok()) << nth;
    for (std::int64_t i = 0; i < 60; ++i) ASSERT_TRUE(same_bits(again.of(i), host.of(100 + i))) << nth;
  }
  EXPECT_GT(failures, 40);
  transaction.rollback();
}

TEST(DeviceFault, AStepTakesNoDeviceMemory) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const OpenClCalls calls = faulty_calls();
  const Story story(small_path(), 200, 32);
  DeviceStory held(story, DeviceStory::must(device::open_by(calls, "opencl", {})));
  held.append(100);
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
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const OpenClCalls calls = faulty_calls();
  const auto opened = DeviceStory::must(device::open_by(calls, "opencl", {}));
  const Geometry geometry = *Geometry::admit(small_path());
  std::int64_t refused = 0;
  for (std::int64_t nth = 1; nth <= 15; ++nth) {
    left = nth;
    refused += fails_with(DeviceWorkspace::create(opened, geometry, 1000, 4).status(), Code::kOutOfMemory, "device") ? 1 : 0;
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
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const OpenClCalls calls = faulty_calls();
  const auto opened = device::open_by(calls, "opencl", {}, "__kernel void broken(__global int* x) { x[0] = no_such_name; }\n");
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Status status = DeviceWorkspace::create(*opened, *Geometry::admit(small_path()), 100, 1).status();
  EXPECT_TRUE(fails_with(status, Code::kUnsupported, "device"));
  EXPECT_NE(status.message().find("no_such_name"), std::string_view::npos) << status.message();
}

TEST(DeviceFault, ADeviceThatDoesNotPromiseTheArithmeticIsRefusedByName) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
  const OpenClCalls calls = faulty_calls();
  without = CL_FP_FMA;
  const Status status = device::open_by(calls, "opencl:0", {}).status();
  EXPECT_TRUE(fails_with(status, Code::kUnsupported, "device"));
  EXPECT_NE(status.message().find("opencl:0"), std::string_view::npos) << status.message();
  EXPECT_NE(status.message().find("fused multiply-add"), std::string_view::npos) << status.message();
  EXPECT_TRUE(device::open_by(calls, "opencl:0", {.accept_other_bits = true}).ok());
  without = 0;
  EXPECT_TRUE(device::open_by(calls, "opencl:0", {}).ok());
}

TEST(DeviceFault, AnUnknownNameListsWhatThereIs) {
  SERIATIM_SKIP_WITHOUT_DEVICE();
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
  const auto found = device::list_devices_by(calls);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found->empty());
  EXPECT_TRUE(fails_with(device::open_by(calls, "opencl", {}).status(), Code::kNotFound, "device"));
}

}  // namespace
}  // namespace seriatim::testing
