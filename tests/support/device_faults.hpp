// Shared by the tests of the drivers that can be told to fail: each call of a step, and of opening, fails once in turn.
// `left` is the driver's: its so manieth call from now on fails, once; 0: none does.
#pragma once

#include "support/device.hpp"

namespace seriatim::testing {

// Outputs stay, the held state still serves, and the next try is right. Gives how many calls failed.
inline void fail_every_call_of_a_step(std::shared_ptr<Device> device, std::int64_t& left, std::int64_t& failures) {
  const Story story(small_path(), 160, 31);
  const Answers host = one_call(story);
  DeviceStory held(story, std::move(device));
  held.append(100);
  auto transaction = DeviceStory::must(held.cache().begin());
  ASSERT_TRUE(transaction.append(held.id(), 0, story.batch(100, 60)).ok());
  const LayerView staged = *transaction.layer(held.id(), 0);
  const auto step = [&](Answers& answers) -> Status { return held.ask_over(staged, every_token(100, 60), answers); };
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
    // A call that failed wrote nothing, a plan before it is right.
    ASSERT_TRUE(failed.outputs_untouched()) << nth;
    for (std::int64_t i = 0; !failed.rows_untouched() && i < 60; ++i)
      ASSERT_TRUE(same_bytes<std::int32_t>(failed.row(i), host.row(100 + i))) << nth;
    // The published state still serves, by what the device holds of it or by sending it again.
    ASSERT_TRUE(held.follow().ok()) << nth;
    Answers before(story.geometry, 10);
    ASSERT_TRUE(held.ask(every_token(90, 10), before).ok()) << nth;
    for (std::int64_t i = 0; i < 10; ++i) ASSERT_TRUE(same_bits(before.of(i), host.of(90 + i))) << nth;
    Answers again(story.geometry, 60);
    ASSERT_TRUE(step(again).ok()) << nth;
    for (std::int64_t i = 0; i < 60; ++i) ASSERT_TRUE(same_bits(again.of(i), host.of(100 + i))) << nth;
  }
  transaction.rollback();
}

// Opening by `open()`, building and taking memory; `given_back(nth)` looks after each try. Gives how many calls failed.
template <typename Open, typename GivenBack>
void fail_every_call_of_opening(Open open, GivenBack given_back, std::int64_t& left, std::int64_t& failures) {
  const Geometry geometry = *Geometry::admit(small_path());
  for (std::int64_t nth = 1;; ++nth) {
    left = nth;
    std::shared_ptr<Device> kept;  // its end makes calls too, whose failures are nobody's
    const auto all = [&]() -> Status {
      const auto device = open();
      if (!device.ok()) return device.status();
      kept = *device;
      const auto memory = DeviceMemory::create(*device, 1 << 20);
      if (!memory.ok()) return memory.status();
      const auto sequence = DeviceSequence::create(**memory, geometry, {LayerParameters{}}, 400);
      if (!sequence.ok()) return sequence.status();
      return DeviceWorkspace::create(*device, geometry, 400, 4).status();
    }();
    const bool fired = left == 0;
    left = 0;
    kept.reset();
    given_back(nth);
    if (!fired) {
      EXPECT_TRUE(all.ok()) << all.message();
      break;
    }
    ++failures;
    ASSERT_TRUE(fails_with(all, Code::kOutOfMemory, "device")) << nth;
  }
}

}  // namespace seriatim::testing
