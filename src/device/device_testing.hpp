// Shared by the tests of this module: one story in a cache whose pages have copies on the device, and the device's
// answers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "seriatim/device.hpp"
#include "support/path.hpp"

namespace seriatim::testing {

// What these tests run on: the device that SERIATIM_TEST_DEVICE names, else the first that keeps the bits.
inline std::string device_under_test() {
  if (const char* named = std::getenv("SERIATIM_TEST_DEVICE"); named != nullptr) return named;
  const auto found = list_devices();
  for (const DeviceInfo& one : found.ok() ? *found : std::vector<DeviceInfo>{}) {
    if (one.lacks().empty()) return one.name;
  }
  return "";
}

// A machine without a device skips these tests; where SERIATIM_NEED_DEVICE is set, as in CI, it fails them.
inline bool no_device() { return device_under_test().empty() && std::getenv("SERIATIM_NEED_DEVICE") == nullptr; }
#define SERIATIM_SKIP_WITHOUT_DEVICE() \
  if (no_device()) GTEST_SKIP() << "no device on this machine"

inline std::shared_ptr<Device> open_device(std::int64_t work_group = 0) {
  auto opened = Device::open(device_under_test(), {.work_group = work_group});
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? *opened : nullptr;
}

class DeviceStory {
 public:
  static constexpr std::int64_t kBytes = std::int64_t{64} << 20;

  DeviceStory(const Story& story, std::shared_ptr<Device> opened, std::int64_t max_queries = 64,
              std::int64_t bytes = kBytes, std::int64_t page_tokens = 0)
      : story_(story), device_(std::move(opened)), memory_(must(DeviceMemory::create(device_, bytes))) {
    parameters_[0].index_norm_weight = story.norm_weight;
    CacheOptions options;
    options.layers = parameters_;
    options.capacity_tokens = 4 * story.tokens() + 4096;
    options.page_tokens = page_tokens;
    options.allocator = memory_.get();
    cache_ = must(Cache::create(story.geometry, std::move(options)));
    id_ = *cache_->add(story.anchor);
    sequence_.emplace(must(DeviceSequence::create(*memory_, story.geometry, parameters_, 2 * story.tokens() + 4096)));
    workspace_.emplace(must(DeviceWorkspace::create(device_, story.geometry, story.tokens(), max_queries)));
  }

  // Appends so many tokens and lets the device follow.
  void append(std::int64_t count) {
    auto transaction = must(cache_->begin());
    ASSERT_TRUE(transaction.append(id_, 0, story_.batch(held_, count)).ok());
    ASSERT_TRUE(transaction.commit().ok());
    held_ += count;
    follow();
  }
  void follow() {
    const Status status = sequence_->follow(snapshot());
    ASSERT_TRUE(status.ok()) << status.message();
  }

  // Plans and attends; the answers go to places `first` and on.
  Status ask(std::span<const std::int64_t> tokens, Answers& answers, std::int64_t first = 0,
             NanPolicy nan = NanPolicy::kRefuse) {
    const Asked asked(story_, tokens);
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (Status s = workspace_->plan(*sequence_, 0, asked.for_plan(), nan, answers.rows_from(first)); !s.ok()) return s;
    if (Status s =
            workspace_->attend(*sequence_, 0, asked.for_attend(), std::nullopt,
                               answers.output.writable_rows(first, count), answers.lse.writable_rows(first, count));
        !s.ok()) {
      (void)workspace_->wait();
      return s;
    }
    return workspace_->wait();
  }

  Snapshot snapshot() const { return *cache_->snapshot(id_); }
  Cache& cache() { return *cache_; }
  SequenceId id() const { return id_; }
  DeviceSequence& sequence() { return *sequence_; }
  DeviceWorkspace& workspace() { return *workspace_; }
  DeviceMemory& memory() { return *memory_; }
  Device& device() { return *device_; }
  const std::vector<LayerParameters>& parameters() const { return parameters_; }
  std::int64_t held() const { return held_; }
  void set_held(std::int64_t tokens) { held_ = tokens; }

  template <typename T>
  static T must(Result<T> result) {
    EXPECT_TRUE(result.ok()) << result.status().message();
    return std::move(result).value();
  }

 private:
  const Story& story_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<DeviceMemory> memory_;
  std::vector<LayerParameters> parameters_{1};
  std::unique_ptr<Cache> cache_;
  SequenceId id_ = 0;
  std::int64_t held_ = 0;
  std::optional<DeviceSequence> sequence_;
  std::optional<DeviceWorkspace> workspace_;
};

// Every token's query, a few at a time.
inline Answers device_answers(const Story& story, std::shared_ptr<Device> device, std::int64_t at_once = 32) {
  DeviceStory held(story, std::move(device), at_once);
  held.append(story.tokens());
  Answers answers(story.geometry, story.tokens());
  for (std::int64_t first = 0; first < story.tokens(); first += at_once) {
    const Status status = held.ask(every_token(first, std::min(at_once, story.tokens() - first)), answers, first);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  return answers;
}

}  // namespace seriatim::testing
