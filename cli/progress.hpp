// A progress line on stderr, only when it is a terminal and the work takes more than a moment.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

namespace seriatim::cli {

class Progress {
 public:
  Progress();
  ~Progress();  // wipes the line
  void operator()(std::string_view stage, std::int64_t done, std::int64_t total);

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool shown_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_{};
};

}  // namespace seriatim::cli
