#include "watched_executor.hpp"

namespace seriatim::capi {
namespace {

// Spreads unit numbers so that the sum over 0 .. units - 1 tells another collection of as many units apart.
std::uint64_t spread(std::int64_t unit) {
  std::uint64_t x = static_cast<std::uint64_t>(unit) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class CountedTask final : public Task {
 public:
  CountedTask(Task& inner, std::int64_t units, int concurrency)
      : inner_(inner), units_(units), concurrency_(concurrency) {}

  void perform(std::int64_t unit, int worker) override {
    if (unit < 0 || unit >= units_ || worker < 0 || worker >= concurrency_) {
      outside_ = true;
      return;
    }
    inner_.run(unit, worker);
    sum_ += spread(unit);
    ++count_;
  }

  bool each_once() const {
    std::uint64_t expected = 0;
    for (std::int64_t unit = 0; unit < units_; ++unit) expected += spread(unit);
    return !outside_ && count_ == units_ && sum_ == expected;
  }

 private:
  Task& inner_;
  const std::int64_t units_;
  const int concurrency_;
  std::atomic<std::int64_t> count_{0};
  std::atomic<std::uint64_t> sum_{0};
  std::atomic<bool> outside_{false};
};

}  // namespace

void WatchedExecutor::run(std::int64_t units, Task& task) {
  CountedTask counted(task, units, concurrency_);
  inner_.run(units, counted);
  if (!counted.each_once()) faulty_ = true;
}

Status WatchedExecutor::take_fault() {
  if (!faulty_.exchange(false)) return {};
  return Status::error(
      Code::kInvalidArgument, "executor",
      "executor: it did not run every unit once with a worker below its concurrency; outputs are not to be used");
}

}  // namespace seriatim::capi
