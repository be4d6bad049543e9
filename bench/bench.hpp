// What every measure shares: the choice of kernels, executors, effort and filter, and the rule that nothing is timed
// before its result was compared with the reference.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/limits.hpp"
#include "bench/table.hpp"
#include "bench/timing.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim::bench {

// What one run must at least move and compute.
struct Work {
  double cold_bytes = 0.0;  // from DRAM
  double fmas = 0.0;
  double extra_ns = 0.0;        // a part of the limit that was measured by itself
  std::int64_t run_bytes = 0;   // the cold bytes lie in runs of so many, a multiple of 64; 0: together
  std::int64_t over_bytes = 0;  // what those are scattered over, together with the bytes between them
};

struct Goal {
  double to_limit = 0.0;   // 0: none
  double best_peer = 0.0;  // at least so many times faster than the fastest peer; 0: none
  std::string words;
};

class Bench {
 public:
  Bench(Kernels kernels, bool quick, std::string filter);

  Kernels kernels() const { return kernels_; }
  bool quick() const { return quick_; }
  Executor& executor(int threads) { return threads == 1 ? serial_executor() : *two_; }
  Effort effort() const { return quick_ ? Effort{0.4, 200} : Effort{2.0, 2000}; }
  bool wants(std::string_view name) const { return filter_.empty() || name.find(filter_) != std::string_view::npos; }

  // Times `ours` against its limit and its peers, all in turns, and prints and keeps the measure.
  const Measure& add(std::string name, const Contestant& ours, const Work& work, int threads,
                     std::vector<Contestant> peers, const Goal& goal);
  // Keeps a measure that is derived from others.
  void note(Measure measure);
  const std::vector<Measure>& measures() const { return measures_; }

  // Has every worker read so much other memory that nothing else is left in any cache, as a model's other layers do
  // between two steps of one. The workers are awake afterwards.
  void chill(int threads);

  // What reads a work's scattered runs, all memory cold.
  Contestant scattered(const Work& work, int threads, std::unique_ptr<ScatteredPass>& pass);

 private:
  Kernels kernels_;
  bool quick_;
  std::string filter_;
  std::unique_ptr<Executor> two_;
  std::vector<Measure> measures_;
  std::vector<ReadPass> coolants_;  // of one thread, of two
  std::unique_ptr<ScatteredMemory> scattered_;
};

// Ends the program if a result is not the reference's: a wrong answer is never timed.
void require(bool right, std::string_view what);

void bench_select(Bench& bench);
void bench_score(Bench& bench);
void bench_screen(Bench& bench);
void bench_attend(Bench& bench);
void bench_decode(Bench& bench);
void bench_batch(Bench& bench);
void bench_latent(Bench& bench);
void bench_prefill(Bench& bench);
void bench_cache(Bench& bench);
void bench_borrow(Bench& bench);

}  // namespace seriatim::bench
