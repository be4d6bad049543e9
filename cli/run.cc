#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "check_report.hpp"
#include "commands.hpp"
#include "device_engine.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "print.hpp"
#include "progress.hpp"
#include "ranks.hpp"
#include "report.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/group.hpp"
#include "seriatim/replay.hpp"
#include "seriatim/shard.hpp"

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

// What a replay needs of this process.
struct Prepared {
  std::optional<Capture> capture;
  std::unique_ptr<Executor> executor;
  std::optional<Engine> engine;
};

Status prepare(const RunOptions& options, bool writes, Prepared& prepared) {
  if (writes) {
    if (Status s = admit_outputs({options.capture}, {{"out", options.out}, {"html", options.html}}); !s.ok()) return s;
  }
  if (options.mpi && !options.device.empty())
    return Status::error(Code::kUnsupported, "device", "device: the processes of --mpi work on the host");
  auto capture = Capture::open(options.capture);
  if (!capture.ok()) return capture.status();
  prepared.capture.emplace(*std::move(capture));
  prepared.executor = make_executor(options.threads);
  if (prepared.executor == nullptr)
    return Status::error(Code::kOutOfMemory, "threads", "threads: the system refused memory");
  auto engine = options.device.empty() ? Engine::host(*prepared.executor) : device_engine(options.device);
  if (!engine.ok()) return engine.status();
  prepared.engine.emplace(*std::move(engine));
  return {};
}

Result<Replay> replay_with_progress(const Capture& capture, ReplayOptions options, bool shown) {
  Progress progress;
  if (shown) {
    options.progress = [&progress](std::string_view stage, std::int64_t step, std::int64_t total) {
      progress(stage, step, total);
    };
  }
  return replay(capture, options);
}

int show(const RunOptions& options, Prepared& prepared, const Replay& done) {
  int code = done.agrees() ? kAgrees : kDisagrees;
  const auto note = [&code](const Status& status) {
    if (!status.ok()) code = refuse(status);
  };
  const Capture& capture = *prepared.capture;
  print(options.json ? json(options.capture, capture, done) : table(options.capture, capture, done));
  if (!options.out.empty()) note(write_replay(options.out, capture, done));
  if (!options.html.empty())
    note(write_page(options.html, options, *std::move(prepared.capture), done, *prepared.executor));
  return code;
}

// The terms of a replay over ranks: the same capture, as far as its shape says.
Call terms(const RunOptions& options, const Prepared& prepared) {
  Call call("run");
  call.with("margin", std::as_bytes(std::span(&options.margin, 1)));
  if (!prepared.engine) return call;
  const Capture& capture = *prepared.capture;
  call.with("tokens", capture.tokens()).with("anchor", capture.anchor);
  call.with("query_positions", std::as_bytes(std::span(capture.query_positions)));
  call.with("expected_rows", capture.expected_rows.empty() ? 0 : 1);
  return call;
}

// One rank of several: every rank ends with the same code, the first one speaks.
int run_on_ranks(const RunOptions& options) {
  auto ranks = Ranks::start(std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout * 1000.0)));
  if (!ranks.ok()) return refuse(ranks.status());
  const bool speaks = (*ranks)->transport()->rank() == 0;
  const auto failed = [&](const Status& status) {
    if (status.code() == Code::kPeerLost) (*ranks)->abandon(refuse(status));
    return speaks ? refuse(status) : kBadInput;
  };
  auto group = Group::meet((*ranks)->transport(), Call("seriatim"));
  if (!group.ok()) return failed(group.status());
  Prepared prepared;
  const Status mine = prepare(options, speaks, prepared);
  if (Status s = group->agree(terms(options, prepared), mine); !s.ok()) return failed(s);
  ShardedEngine engine(*std::move(prepared.engine), *group);
  ReplayOptions replay_options;
  replay_options.margin = options.margin;
  replay_options.sharded = &engine;
  replay_options.group = &*group;
  const auto done = replay_with_progress(*prepared.capture, replay_options, speaks);
  if (!done.ok()) return failed(done.status());
  return speaks ? show(options, prepared, *done) : done->agrees() ? kAgrees : kDisagrees;
}

}  // namespace

int run(const RunOptions& options) {
  if (options.mpi) return run_on_ranks(options);
  Prepared prepared;
  if (Status s = prepare(options, true, prepared); !s.ok()) return refuse(s);
  ReplayOptions replay_options;
  replay_options.margin = options.margin;
  replay_options.engine = &*prepared.engine;
  const auto done = replay_with_progress(*prepared.capture, replay_options, true);
  return done.ok() ? show(options, prepared, *done) : refuse(done.status());
}

}  // namespace seriatim::cli
