#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "check_report.hpp"
#include "commands.hpp"
#include "outputs.hpp"
#include "page.hpp"
#include "print.hpp"
#include "progress.hpp"
#include "seriatim/executor.hpp"

namespace seriatim::cli {
namespace {

// What the two files of the command line come to: rows, and who judges them.
struct Case {
  std::unique_ptr<Selection> dump;
  std::unique_ptr<JudgedCapture> judge;
  std::unique_ptr<Selection> rescored;
  double margin = 0.0;

  const Selection& rows() const { return rescored != nullptr ? *rescored : *dump; }
};

bool is_capture(const std::string& path) {
  const auto file = SafetensorsFile::open(path, {.file_bytes = std::int64_t{1} << 40});
  if (!file.ok()) return false;
  const auto kind = file->metadata().find("seriatim");
  return kind != file->metadata().end() && kind->second.starts_with("capture/");
}

double default_margin(const Capture& capture) { return capture.geometry.index_dtype() == DType::kF32 ? 1e-5 : 1e-2; }

Status open_case(const CheckCommand& command, Case& to) {
  auto dump = open_selection(command.dump);
  std::string against = command.against;
  // A capture with expected rows is judged by itself.
  if (!dump.ok() && dump.status().code() == Code::kUnsupported && against.empty() && is_capture(command.dump))
    against = command.dump;
  if (!dump.ok() && against != command.dump) return dump.status();
  if (dump.ok()) to.dump = *std::move(dump);
  if (!against.empty()) {
    auto capture = Capture::open(against);
    if (!capture.ok()) return capture.status();
    to.margin = default_margin(*capture);
    auto judge = judge_with(*std::move(capture));
    if (!judge.ok()) return judge.status();
    to.judge = *std::move(judge);
    auto rescored = to.judge->rows(to.dump.get());
    if (!rescored.ok()) return rescored.status();
    to.rescored = *std::move(rescored);
  }
  if (command.margin >= 0.0) to.margin = command.margin;
  return {};
}

bool colourful() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

int explain(const std::string& name) {
  const auto promise = promise_named(name);
  if (!promise)
    return refuse(
        Status::error(Code::kInvalidArgument, "explain", formatted("explain: there is no promise `{}`", name)));
  print("{}: {}\n", promise_name(*promise), promise_text(*promise));
  return kAgrees;
}

}  // namespace

int check(const CheckCommand& command) {
  if (!command.explain.empty()) return explain(command.explain);
  if (command.dump.empty())
    return refuse(Status::error(Code::kInvalidArgument, "dump", "dump: name the file to judge"));
  if (Status s = admit_outputs({command.dump, command.against},
                               {{"json", command.json}, {"html", command.html}, {"png", command.png}});
      !s.ok())
    return refuse(s);
  Case opened;
  if (Status s = open_case(command, opened); !s.ok()) return refuse(s);
  const auto executor = make_executor(command.threads);
  if (executor == nullptr)
    return refuse(Status::error(Code::kOutOfMemory, "threads", "threads: the system refused memory"));
  CheckOptions options;
  options.rule = command.rule;
  options.margin = opened.margin;
  options.findings_per_promise = command.findings;
  options.against = opened.judge.get();
  options.executor = executor.get();
  const auto report = [&] {
    Progress progress;
    options.progress = [&progress](std::string_view stage, std::int64_t done, std::int64_t total) {
      progress(stage, done, total);
    };
    return seriatim::check(opened.rows(), options);
  }();
  if (!report.ok()) return refuse(report.status());
  const Judged judged{command.dump, command.against};
  int code = report->conforms() ? kAgrees : kDisagrees;
  const auto write = [&code](const std::string& path, const auto& text) {
    if (Status s = text.ok() ? write_output(path, *text) : text.status(); !s.ok()) code = refuse(s);
  };
  if (command.json != "-") print(table(judged, opened.rows(), *report, colourful()));
  const auto object = conformance(judged, opened.rows(), *report);
  if (!command.json.empty()) write(command.json, Result<std::string>(conformance_text(object)));
  if (!command.html.empty()) write(command.html, page_of(opened.rows(), *report, object));
  if (!command.png.empty()) write(command.png, picture_of(opened.rows(), *report));
  return code;
}

}  // namespace seriatim::cli
