// seriatim: deterministic sparse attention from the command line.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <sstream>

#include "base/float_environment.hpp"
#include "commands.hpp"
#include "print.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim::cli {

int refuse(const Status& status) {
  complain(formatted("seriatim: {}: {}", code_name(status.code()), status.message()));
  return kBadInput;
}

namespace {

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "Replay a capture of one layer and compare it with what was captured");
  command->add_option("capture", options.capture, "The capture (safetensors, capture/1)")
      ->required()
      ->type_name("CAPTURE");
  command->add_option("--out", options.out, "Write rows, counts, output and lse here (safetensors, replay/1)")
      ->type_name("REPLAY");
  command->add_option("--html", options.html, "Write a page here that shows our rows as `check --html` does")
      ->type_name("FILE");
  command->add_flag("--json", options.json, "Print a JSON object instead of the table");
  command
      ->add_option("--threads", options.threads,
                   "Threads; 0 is as many as the process may use. The bits do not depend on it")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--margin", options.margin,
                   "Relative distance from the cut within which a differing group is `near` (default: 1e-5 for f32, "
                   "1e-2 for bf16 and f16)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("X");
  command
      ->add_option("--device", options.device,
                   "Plan and attend on this device (a name of `seriatim devices`, or `opencl`, or `cuda`). The bits do "
                   "not depend on it")
      ->type_name("NAME");
  command->add_flag("--mpi", options.mpi,
                    "Share the context out among the processes of an MPI launch (mpirun -n N seriatim run ... --mpi). "
                    "The bits do not depend on it");
  command->add_option("--timeout", options.timeout, "Seconds that a process of --mpi waits for another one")
      ->check(CLI::Range(0.001, 86400.0))
      ->capture_default_str()
      ->type_name("S");
  command->footer("Exit status: 0 it agrees, 1 it does not, 2 the input is bad.");
  return command;
}

CLI::App* add_select(CLI::App& app, SelectOptions& options) {
  static const std::map<std::string, NanPolicy> policies{{"refuse", NanPolicy::kRefuse},
                                                         {"exclude", NanPolicy::kExclude}};
  CLI::App* command = app.add_subcommand("select", "Apply the rule alone to any engine's scores");
  command->add_option("scores", options.scores, "Scores per group: f32 [G] or [Q, G] (.npy)")
      ->required()
      ->type_name("SCORES");
  command->add_option("--visible", options.visible, "Visible tokens of every query (default: groups x group size)")
      ->type_name("N");
  command->add_option("--group", options.group_tokens, "Tokens per group")->capture_default_str()->type_name("R");
  command->add_option("--budget", options.budget_tokens, "Budget in tokens, a multiple of the group size")
      ->capture_default_str()
      ->type_name("B");
  command->add_option("--anchor", options.anchor, "Position of the first visible token")
      ->capture_default_str()
      ->type_name("A");
  command->add_option("--nan", options.nan, "What a NaN score does: `refuse` (an error) or `exclude` (never chosen)")
      ->transform(CLI::CheckedTransformer(policies).description(""))
      ->default_str("refuse")
      ->type_name("refuse|exclude");
  command->add_option("--out", options.out, "Write rows here: i32 [Q, budget + group - 1], -1 past each count (.npy)")
      ->type_name("ROWS");
  command->footer("Exit status: 0 done, 2 the input is bad.");
  return command;
}

CLI::App* add_check(CLI::App& app, CheckCommand& options) {
  static const std::map<std::string, RowRule> rules{{"canonical", RowRule::kCanonical},
                                                    {"set", RowRule::kSet},
                                                    {"rank", RowRule::kRank},
                                                    {"arrival", RowRule::kArrival}};
  CLI::App* command = app.add_subcommand("check", "Judge the rows that any engine selected, promise by promise");
  command
      ->add_option("dump", options.dump, "The rows: a dump (safetensors, selection/1) or a capture with expected rows")
      ->type_name("DUMP");
  command
      ->add_option("--against", options.against,
                   "A capture of the same queries: its scores judge the rows, its outputs theirs")
      ->type_name("CAPTURE");
  command
      ->add_option("--rule", options.rule,
                   "The order demanded: `canonical` (ascending), `set` (none), `rank` (by falling score) or `arrival` "
                   "(whole groups in any order)")
      ->transform(CLI::CheckedTransformer(rules).description(""))
      ->default_str("canonical")
      ->type_name("canonical|set|rank|arrival");
  command
      ->add_option("--margin", options.margin,
                   "Relative distance from the cut within which an exchanged group is `near` and no fault (default: 0; "
                   "with a capture 1e-5 for f32, 1e-2 for bf16 and f16)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("X");
  command
      ->add_option(
          "--json", options.json,
          "Write the verdict here (docs/conformance.schema.json); `-` is standard output, instead of the table")
      ->type_name("FILE");
  command
      ->add_option("--html", options.html,
                   "Write a page here that shows the rows, the verdicts and the scores; it needs no network")
      ->type_name("FILE");
  command->add_option("--png", options.png, "Write the image of the rows here, queries down, positions across")
      ->type_name("FILE");
  command->add_option("--findings", options.findings, "Findings kept of each promise, the first ones; all are counted")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
  command->add_option("--explain", options.explain, "Say what a promise demands and why, and do nothing else")
      ->type_name("PROMISE");
  command->add_option("--threads", options.threads, "Threads; 0 is as many as the process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  command->footer("Exit status: 0 the rows conform, 1 they do not, 2 the input is bad.");
  return command;
}

struct CacheCommands {
  std::string file;
  const CLI::App* cache = nullptr;
  const CLI::App* verify = nullptr;
};

void add_cache(CLI::App& app, CacheCommands& commands) {
  CLI::App* cache = app.add_subcommand("cache", "Look into a file that a cache was saved to");
  cache->require_subcommand(1);
  CLI::App* info = cache->add_subcommand("info", "Say what is in it");
  CLI::App* verify = cache->add_subcommand("verify", "Say whether it is whole: checksums, elements, pooled keys");
  for (CLI::App* command : {info, verify})
    command->add_option("file", commands.file, "The file")->required()->type_name("FILE");
  info->footer("Exit status: 0 done, 2 the file cannot be read or is damaged.");
  verify->footer("Exit status: 0 it is whole, 1 it is not, 2 it cannot be read.");
  commands.cache = cache;
  commands.verify = verify;
}

std::string version() {
  std::string text =
      formatted("seriatim {}\nkernels {} (SERIATIM_KERNELS forces one of:", SERIATIM_VERSION, default_kernels().name());
  for (const Kernels& kernels : Kernels::available()) text += ' ' + kernels.name();
  return text + ')';
}

// Given back when memory is refused for the first time: what is destroyed on the way out may need some (JSON does).
std::unique_ptr<char[]> last_memory;

void refuse_memory() {
  last_memory.reset();
  std::set_new_handler(nullptr);
  throw std::bad_alloc();
}

int dispatch(int argc, char** argv) try {
  constexpr std::size_t kLastMemoryBytes = std::size_t{8} << 20;  // addresses alone: never touched
  last_memory = std::make_unique_for_overwrite<char[]>(kLastMemoryBytes);
  std::set_new_handler(refuse_memory);

  CLI::App app("Deterministic sparse attention: top-k chooses the set, time chooses the order.", "seriatim");
  app.set_version_flag("--version", version);
  app.require_subcommand(1);
  RunOptions run_options;
  SelectOptions select_options;
  const CLI::App* run_command = add_run(app, run_options);
  add_select(app, select_options);
  CheckCommand check_options;
  const CLI::App* check_command = add_check(app, check_options);
  CacheCommands cache;
  add_cache(app, cache);
  const CLI::App* devices_command =
      app.add_subcommand("devices", "List the devices that --device takes and what each promises of its arithmetic");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    std::ostringstream fault;
    const int code = app.exit(error, help, fault);
    print(help.str());
    std::fputs(fault.str().c_str(), stderr);
    return code == 0 ? kAgrees : kBadInput;
  }
  // A forced implementation that is not there must not go unnoticed.
  if (const auto kernels = Kernels::chosen(); !kernels.ok()) return refuse(kernels.status());
  if (cache.cache->parsed()) return cache.verify->parsed() ? cache_verify(cache.file) : cache_info(cache.file);
  if (devices_command->parsed()) return devices();
  if (check_command->parsed()) return check(check_options);
  return run_command->parsed() ? run(run_options) : select(select_options);
} catch (const std::bad_alloc&) {
  return refuse(Status::error(Code::kOutOfMemory, "memory", "the system refused memory"));
}

}  // namespace
}  // namespace seriatim::cli

int main(int argc, char** argv) {
  // Also for what the tool itself computes of its reports.
  seriatim::DefaultFloatEnvironment environment;
  seriatim::cli::open_standard_streams();
  return seriatim::cli::finished(seriatim::cli::dispatch(argc, argv));
}
