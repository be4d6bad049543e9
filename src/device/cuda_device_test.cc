// The CUDA backend, and the CUDA form of the kernels' text, over an emulated driver: the bits, the cache's operations,
// and a driver that refuses, loses or lacks something. What this cannot show is a GPU's own arithmetic and timing.
#include <gtest/gtest.h>

#include "device/emulated/cuda.hpp"
#include "support/device_faults.hpp"

namespace seriatim::testing {
namespace {

// Each test begins with a driver without faults, and ends with everything given back.
class CudaEmulated : public ::testing::Test {
 protected:
  void SetUp() override { cuda_faults() = {}; }
  void TearDown() override { EXPECT_EQ(cuda_faults().held, 0) << "something of the driver's was not given back"; }
};

std::shared_ptr<Device> opened(std::int64_t work_group = 4) { return DeviceStory::must(open_emulated(work_group)); }

TEST_F(CudaEmulated, EveryQueryHasTheHostsRowOutputAndLse) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
    for (const std::int64_t r : {1, 2, 3, 4}) {
      const Story story(small_path(r, dtype), 70 * r, 40 + static_cast<std::uint64_t>(r));
      const Answers host = one_call(story);
      EXPECT_GT(sparse_rows(host), 0);
      EXPECT_TRUE(same_answers(device_answers(story, opened()), host)) << dtype_name(dtype) << ", groups of " << r;
    }
  }
}

TEST_F(CudaEmulated, WorkGroupsOfAnySizeGiveTheSameBits) {
  const Story story(small_path(4, DType::kBf16), 300, 91);
  const Answers host = one_call(story);
  for (const std::int64_t work_group : {1, 4, 7})
    EXPECT_TRUE(same_answers(device_answers(story, opened(work_group)), host)) << work_group;
}

TEST_F(CudaEmulated, WorkIsEnqueuedAndOutputsAreWrittenByTheWaitAlone) {
  const Story story(small_path(), 60, 18);
  DeviceStory held(story, opened());
  held.append(story.tokens());
  const std::vector<std::int64_t> tokens{50};
  const Asked asked(story, tokens);
  const Answers due = one_call(story);
  Answers got(story.geometry, 1);
  const Snapshot snapshot = held.snapshot();
  const DeviceSequence& sequence = *DeviceStory::must(held.on().bring_up(snapshot.layer(0)));
  DeviceWorkspace& work = held.on().workspace(story.geometry);
  ASSERT_TRUE(work.plan(sequence, 0, asked.for_plan(), NanPolicy::kRefuse, got.rows_from(0)).ok());
  EXPECT_TRUE(got.rows_untouched());
  ASSERT_TRUE(work.wait().ok());
  ASSERT_TRUE(
      work.attend(sequence, 0, asked.for_attend(), got.rows_from(0), got.output.writable(), got.lse.writable()).ok());
  EXPECT_TRUE(got.outputs_untouched());
  ASSERT_TRUE(work.wait().ok());
  EXPECT_TRUE(same_bits(got.of(0), due.of(50)));
}

TEST_F(CudaEmulated, AnyFailedCallLeavesOutputsAndTheHeldStateAndTheNextTryIsRight) {
  std::int64_t failures = 0;
  fail_every_call_of_a_step(opened(), cuda_faults().left, failures);
  EXPECT_GT(failures, 20);
}

TEST_F(CudaEmulated, OpeningBuildingAndTakingMemoryFailCleanlyAtEveryCall) {
  std::int64_t failures = 0;
  fail_every_call_of_opening([] { return open_emulated(); },
                             [](std::int64_t nth) { EXPECT_EQ(cuda_faults().held, 0) << nth; }, cuda_faults().left,
                             failures);
  EXPECT_GT(failures, 45);
}

TEST_F(CudaEmulated, ALostDeviceIsReportedAtEveryCallAndOutputsStay) {
  const Story story(small_path(), 60, 34);
  {
    DeviceStory held(story, opened());
    held.append(50);
    ASSERT_TRUE(held.follow().ok());
    cuda_faults().lost = true;
    Answers answers(story.geometry, 10);
    for (int tries = 0; tries < 2; ++tries) {
      EXPECT_TRUE(fails_with(held.ask(every_token(40, 10), answers), Code::kIo, "device"));
      EXPECT_TRUE(fails_with(held.follow(), Code::kIo, "device"));
    }
    EXPECT_TRUE(answers.rows_untouched() && answers.outputs_untouched());
    EXPECT_TRUE(held.snapshot().check().ok());
  }
}

TEST_F(CudaEmulated, AStepTakesNoDeviceMemory) {
  const Story story(small_path(), 200, 32);
  DeviceStory held(story, opened());
  held.append(100);
  ASSERT_TRUE(held.follow().ok());
  const std::int64_t before = cuda_faults().buffers_made;
  const std::int64_t taken = cuda_faults().held;
  EXPECT_GT(before, 10);
  for (std::int64_t t = 100; t < 200; ++t) {
    held.append(1);
    Answers answers(story.geometry, 1);
    ASSERT_TRUE(held.ask(every_token(t, 1), answers).ok());
  }
  EXPECT_EQ(cuda_faults().buffers_made, before);
  EXPECT_EQ(cuda_faults().held, taken);
}

TEST_F(CudaEmulated, WhatIsMissingIsNamed) {
  cuda_faults().no_device = true;
  EXPECT_TRUE(fails_with(open_emulated().status(), Code::kNotFound, "device"));
  cuda_faults() = {};
  cuda_faults().no_compiler = true;
  const Status status = open_emulated().status();
  EXPECT_TRUE(fails_with(status, Code::kUnsupported, "device"));
  EXPECT_NE(status.message().find("run-time compiler"), std::string_view::npos) << status.message();
  cuda_faults() = {};
  const auto broken =
      DeviceStory::must(open_emulated(4, "extern \"C\" __global__ void broken() { no_such_name(); }\n"));
  const Status unbuilt = DeviceWorkspace::create(broken, *Geometry::admit(small_path()), 100, 1).status();
  EXPECT_TRUE(fails_with(unbuilt, Code::kUnsupported, "device"));
  EXPECT_NE(unbuilt.message().find("no_such_name"), std::string_view::npos) << unbuilt.message();
}

}  // namespace
}  // namespace seriatim::testing
