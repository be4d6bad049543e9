// seriatim-bench: every measure of docs/performance.md in one process.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "bench/bench.hpp"
#include "bench/print.hpp"
#include "seriatim/file.hpp"

namespace seriatim::bench {
namespace {

constexpr std::int64_t kCoolantBytes = std::int64_t{96} << 20;  // above any cache of a machine this is run on

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

}  // namespace

void require(bool right, std::string_view what) {
  if (right) return;
  print(stderr, "seriatim-bench: {}: not the right answer; nothing is timed\n", what);
  std::exit(1);
}

Bench::Bench(Kernels kernels, bool quick, std::string filter)
    : kernels_(kernels), quick_(quick), filter_(std::move(filter)), two_(make_executor(2)) {
  require(two_ != nullptr, "an executor of two threads");
  for (const int threads : {1, 2}) coolants_.emplace_back(kernels_, executor(threads), kCoolantBytes);
}

void Bench::chill(int threads) { coolants_[static_cast<std::size_t>(threads - 1)].contestant().run(); }

Contestant Bench::scattered(const Work& work, int threads, std::unique_ptr<ScatteredPass>& pass) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  const std::int64_t over = std::min(std::max(work.over_bytes, static_cast<std::int64_t>(work.cold_bytes)), kMostBytes);
  if (scattered_ == nullptr || scattered_->bytes != over) scattered_ = std::make_unique<ScatteredMemory>(over);
  const auto runs = static_cast<std::int64_t>(work.cold_bytes) / work.run_bytes;
  pass = std::make_unique<ScatteredPass>(kernels_, executor(threads), *scattered_, work.run_bytes, runs);
  Contestant reader = pass->contestant();
  reader.prepare = [this, threads] { chill(threads); };
  return reader;
}

const Measure& Bench::add(std::string name, const Contestant& ours, const Work& work, int threads,
                          std::vector<Contestant> peers, const Goal& goal) {
  // The limits run in the same rounds as what is held against them.
  const FmaPeak peak(kernels_, executor(threads));
  const ReadPass pass(kernels_, executor(threads), work.cold_bytes > 0.0 ? std::int64_t{64} << 20 : 64 << 10);
  std::vector<Contestant> contestants{ours, peak.contestant(), pass.contestant()};
  std::unique_ptr<ScatteredPass> runs;
  if (work.run_bytes > 0) contestants.push_back(scattered(work, threads, runs));
  const std::size_t limits = contestants.size();
  contestants.insert(contestants.end(), peers.begin(), peers.end());
  const auto timings = interleave(contestants, effort());

  Measure m;
  m.name = std::move(name);
  m.ours = timings[0];
  const double by_fma = work.fmas * timings[1].median_ns / peak.fmas();
  const double by_long_read = work.cold_bytes * timings[2].median_ns / pass.bytes();
  const double by_bytes = runs ? work.cold_bytes * timings[3].median_ns / runs->bytes() : by_long_read;
  m.limit_ns = std::max(by_fma, by_bytes) + work.extra_ns;
  if (runs) m.long_read_limit_ns = std::max(by_fma, by_long_read) + work.extra_ns;
  m.limit = work.extra_ns > 0.0 ? "sum of the parts' limits"
            : by_bytes > by_fma ? runs ? "bytes / DRAM bandwidth of scattered runs" : "bytes / DRAM bandwidth"
                                : "flops / fma peak";
  double best_peer = 0.0;
  for (std::size_t i = limits; i < timings.size(); ++i) {
    m.peers.push_back({contestants[i].name, timings[i]});
    const double slower = m.times_slower(i - limits);
    best_peer = best_peer == 0.0 ? slower : std::min(best_peer, slower);
  }
  m.target = goal.words;
  if (goal.to_limit > 0.0 || goal.best_peer > 0.0) {
    m.met = (goal.to_limit == 0.0 || m.to_limit() <= goal.to_limit) &&
            (goal.best_peer == 0.0 || best_peer >= goal.best_peer);
  }
  note(std::move(m));
  return measures_.back();
}

void Bench::note(Measure measure) {
  print_measure(measure);
  measures_.push_back(std::move(measure));
}

namespace {

void print_limits(const Limits& l) {
  print(stdout,
        "{} thread{}: fma peak {:.1f} GFLOP/s; read {:.1f} GB/s from DRAM ({:.1f} in scattered runs of 8 KiB), {:.1f} "
        "from 4 MiB a thread, "
        "{:.1f} from 256 KiB a thread\n",
        l.threads, l.threads > 1 ? "s" : "", 2.0 * l.fma_per_ns, l.dram_bytes_per_ns, l.runs_bytes_per_ns,
        l.l3_bytes_per_ns, l.l2_bytes_per_ns);
}

bool ends_well(const Status& status) {
  if (!status.ok()) print(stderr, "seriatim-bench: {}\n", status.message());
  return status.ok();
}

int run_all(Kernels kernels, bool quick, const std::string& filter, const std::string& json) {
  if (!json.empty() && !ends_well(check_output(json))) return 2;
  Bench bench(kernels, quick, filter);
  Machine machine{cpu_name(), kernels.name(), SERIATIM_BUILD, today(), {}};
  print(stdout, "{}; kernels {}; {}; {}\n", machine.cpu, machine.kernels, machine.build, machine.date);
  for (const int threads : {1, 2}) {
    machine.limits.push_back(measure_limits(kernels, bench.executor(threads), {0.5, 100}));
    print_limits(machine.limits.back());
  }
  print_heading();
  for (auto part : {bench_select, bench_score, bench_screen, bench_attend, bench_decode, bench_batch, bench_latent,
                    bench_prefill, bench_cache, bench_borrow})
    part(bench);
  const auto missed =
      std::count_if(bench.measures().begin(), bench.measures().end(), [](const Measure& m) { return m.met == false; });
  const auto met =
      std::count_if(bench.measures().begin(), bench.measures().end(), [](const Measure& m) { return m.met == true; });
  print(stdout, "{} targets met, {} not met\n", met, missed);
  if (json.empty()) return 0;
  const std::string text = to_json(machine, bench.measures());
  return ends_well(write_file(json, std::as_bytes(std::span(text)))) ? 0 : 2;
}

}  // namespace
}  // namespace seriatim::bench

int main(int argc, char** argv) {
  CLI::App app(
      "What Seriatim takes, against the machine's limits and named peers. Every result is checked against the "
      "reference before it is timed.",
      "seriatim-bench");
  bool quick = false;
  std::string json, filter, kernels_name;
  app.add_flag("--quick", quick, "Fewer rounds and sizes; ends within two minutes");
  app.add_option("--json", json, "Write machine and measures here")->type_name("FILE");
  app.add_option("--only", filter,
                 "Only the part of this name: select, score, screen, attend, decode, batch, latent, prefill, cache or "
                 "borrow")
      ->type_name("PART");
  app.add_option("--kernels", kernels_name, "Force an implementation (default: the fastest, or SERIATIM_KERNELS)")
      ->type_name("NAME");
  CLI11_PARSE(app, argc, argv);
  const auto kernels = kernels_name.empty() ? seriatim::Kernels::chosen() : seriatim::Kernels::named(kernels_name);
  if (!kernels.ok()) {
    seriatim::bench::print(stderr, "seriatim-bench: {}\n", kernels.status().message());
    return 2;
  }
  return seriatim::bench::run_all(*kernels, quick, filter, json);
}
