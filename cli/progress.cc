#include "progress.hpp"

#include <unistd.h>

#include <cstdio>

#include "base/format.hpp"

namespace seriatim::cli {

using namespace std::chrono_literals;

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (shown_) std::fputs("\r\033[K", stderr);
}

void Progress::operator()(std::string_view stage, std::int64_t done, std::int64_t total) {
  const auto now = Clock::now();
  if (!terminal_ || now - started_ < 1s || now - drawn_ < 100ms) return;
  drawn_ = now;
  shown_ = true;
  std::fputs(formatted("\r\033[K{} {}/{}", stage, done, total).c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace seriatim::cli
