#include "check_report.hpp"
#include "commands.hpp"
#include "device_engine.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "print.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/replay.hpp"

namespace seriatim::cli {
namespace {

// The page of our own rows, judged by the capture's scores as anybody's.
Status write_page(const std::string& path, const RunOptions& options, Capture capture, const Replay& replay,
                  Executor& executor) {
  const Geometry& g = capture.geometry;
  Selection::About about;
  about.group_tokens = g.group_tokens();
  about.budget_tokens = g.budget_tokens();
  about.anchor = capture.anchor;
  about.engine = "seriatim, on " + (capture.source.empty() ? options.capture : capture.source);
  std::vector<std::int64_t> visible;
  for (const std::int64_t position : capture.query_positions) visible.push_back(position - capture.anchor + 1);
  const SelectionViews views{
      dense_view(replay.rows.data(), DType::kI32, {replay.queries, replay.row_capacity}),
      dense_view(static_cast<const void*>(visible.data()), DType::kI64, {replay.queries}),
      {},
      dense_view(replay.output.data(), DType::kF32, {replay.queries, g.query_heads(), g.value_dim()})};
  const auto selection = view_selection(views, std::move(about));
  if (!selection.ok()) return selection.status();
  const auto judge = judge_with(std::move(capture));
  if (!judge.ok()) return judge.status();
  const auto rows = (*judge)->rows(selection->get());
  if (!rows.ok()) return rows.status();
  CheckOptions check_options;
  check_options.against = judge->get();
  check_options.executor = &executor;
  const auto report = seriatim::check(**rows, check_options);
  if (!report.ok()) return report.status();
  const auto page = page_of(**rows, *report, conformance({options.capture, options.capture}, **rows, *report));
  return page.ok() ? write_output(path, *page) : page.status();
}

}  // namespace

int run(const RunOptions& options) {
  if (Status s = admit_outputs({options.capture}, {{"out", options.out}, {"html", options.html}}); !s.ok())
    return refuse(s);
  const auto capture = Capture::open(options.capture);
  if (!capture.ok()) return refuse(capture.status());
  const auto executor = make_executor(options.threads);
  if (executor == nullptr)
    return refuse(Status::error(Code::kOutOfMemory, "threads", "threads: the system refused memory"));

  ReplayOptions replay_options;
  replay_options.margin = options.margin;
  auto engine = options.device.empty() ? Engine::host(*executor) : device_engine(options.device);
  if (!engine.ok()) return refuse(engine.status());
  replay_options.engine = &*engine;
  const auto done = [&] {
    Progress progress;
    replay_options.progress = [&progress](std::string_view stage, std::int64_t step, std::int64_t total) {
      progress(stage, step, total);
    };
    return replay(*capture, replay_options);
  }();
  if (!done.ok()) return refuse(done.status());
  int code = done->agrees() ? kAgrees : kDisagrees;
  const auto note = [&code](const Status& status) {
    if (!status.ok()) code = refuse(status);
  };
  print(options.json ? json(options.capture, *capture, *done) : table(options.capture, *capture, *done));
  if (!options.out.empty()) note(write_replay(options.out, *capture, *done));
  if (!options.html.empty()) note(write_page(options.html, options, *capture, *done, *executor));
  return code;
}

}  // namespace seriatim::cli
