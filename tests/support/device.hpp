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
#include "device/engine.hpp"
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
  DeviceStory(const Story& story, std::shared_ptr<Device> opened, std::int64_t max_queries = 64,
              std::int64_t page_tokens = 0)
      : story_(story), device_(std::move(opened)), engine_(must(Engine::on(device_))) {
    CacheOptions options;
    options.layers[0].index_norm_weight = story.norm_weight;
    options.capacity_tokens = 4 * story.tokens() + 4096;
    options.page_tokens = page_tokens;
    pages_ = must(engine_.allocator(story.geometry, options));
    options.allocator = pages_.get();
    cache_ = must(Cache::create(story.geometry, std::move(options)));
    id_ = *cache_->add(story.anchor);
    const Status reserved = engine_.reserve(story.geometry, {story.tokens(), max_queries, 8});
    EXPECT_TRUE(reserved.ok()) << reserved.message();
  }

  // Appends so many tokens.
  void append(std::int64_t count) {
    auto transaction = must(cache_->begin());
    ASSERT_TRUE(transaction.append(id_, 0, story_.batch(held_, count)).ok());
    ASSERT_TRUE(transaction.commit().ok());
    held_ += count;
  }
  // Sends what the device lacks of the published state.
  Status follow() { return on().bring_up(snapshot().layer(0)).status(); }

  // Plans and attends over the published state, or over `layer`; the answers go to places `first` and on.
  Status ask(std::span<const std::int64_t> tokens, Answers& answers, std::int64_t first = 0,
             NanPolicy nan = NanPolicy::kRefuse) {
    const Snapshot now = snapshot();
    return ask_over(now.layer(0), tokens, answers, first, nan);
  }
  Status ask_over(const LayerView& layer, std::span<const std::int64_t> tokens, Answers& answers,
                  std::int64_t first = 0, NanPolicy nan = NanPolicy::kRefuse) {
    const Asked asked(story_, tokens);
    const auto count = static_cast<std::int64_t>(tokens.size());
    const Rows rows = answers.rows_from(first);
    if (Status s = engine_.plan(layer, asked.for_plan(), nan, rows); !s.ok()) return s;
    return engine_.attend(layer, asked.for_attend(), rows, answers.output.writable_rows(first, count),
                          answers.lse.writable_rows(first, count));
  }

  Snapshot snapshot() const { return *cache_->snapshot(id_); }
  Cache& cache() { return *cache_; }
  SequenceId id() const { return id_; }
  Engine& engine() { return engine_; }
  DeviceEngine& on() { return static_cast<DeviceEngine&>(engine_.impl()); }
  Device& device() { return *device_; }
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
  Engine engine_;
  std::shared_ptr<PageAllocator> pages_;
  std::unique_ptr<Cache> cache_;
  SequenceId id_ = 0;
  std::int64_t held_ = 0;
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
