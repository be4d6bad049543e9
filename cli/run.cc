#include <fmt/format.h>

#include <cstdio>

#include "commands.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/replay.hpp"

namespace seriatim::cli {

int run(const RunOptions& options) {
  const auto capture = Capture::open(options.capture);
  if (!capture.ok()) return refuse(capture.status());
  const auto executor = make_executor(options.threads);
  if (executor == nullptr) return refuse(Status::error(Code::kOutOfMemory, "threads", "threads: the system refused memory"));

  ReplayOptions replay_options;
  replay_options.margin = options.margin;
  replay_options.executor = executor.get();
  const auto done = [&] {
    Progress progress;
    replay_options.progress = [&progress](std::string_view stage, std::int64_t step, std::int64_t total) { progress(stage, step, total); };
    return replay(*capture, replay_options);
  }();
  if (!done.ok()) return refuse(done.status());
  if (!options.out.empty()) {
    if (Status s = write_replay(options.out, *capture, *done); !s.ok()) return refuse(s);
  }
  const std::string text = options.json ? json(options.capture, *capture, *done) : table(options.capture, *capture, *done);
  std::fputs(text.c_str(), stdout);
  return done->agrees() ? kAgrees : kDisagrees;
}

}  // namespace seriatim::cli
