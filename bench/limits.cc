#include "bench/limits.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/limits.cc"
#include <hwy/foreach_target.h>
// foreach_target comes first: it includes this file once per instruction set.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace seriatim::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 chains hide the latency of two units.
float fma_stretch(std::int64_t steps, float x) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, x);
  const auto b = hn::Set(d, 0.5f);
  // Every chain begins elsewhere: a compiler merges chains that are equal.
  const auto start = [&](int chain) { return hn::Set(d, x + static_cast<float>(chain)); };
  auto c0 = start(0), c1 = start(1), c2 = start(2), c3 = start(3), c4 = start(4), c5 = start(5), c6 = start(6),
       c7 = start(7);
  auto c8 = start(8), c9 = start(9), c10 = start(10), c11 = start(11), c12 = start(12), c13 = start(13),
       c14 = start(14), c15 = start(15);
  for (std::int64_t i = 0; i < steps; ++i) {
    c0 = hn::MulAdd(c0, a, b), c1 = hn::MulAdd(c1, a, b), c2 = hn::MulAdd(c2, a, b), c3 = hn::MulAdd(c3, a, b);
    c4 = hn::MulAdd(c4, a, b), c5 = hn::MulAdd(c5, a, b), c6 = hn::MulAdd(c6, a, b), c7 = hn::MulAdd(c7, a, b);
    c8 = hn::MulAdd(c8, a, b), c9 = hn::MulAdd(c9, a, b), c10 = hn::MulAdd(c10, a, b), c11 = hn::MulAdd(c11, a, b);
    c12 = hn::MulAdd(c12, a, b), c13 = hn::MulAdd(c13, a, b), c14 = hn::MulAdd(c14, a, b), c15 = hn::MulAdd(c15, a, b);
  }
  const auto low = hn::Add(hn::Add(hn::Add(c0, c1), hn::Add(c2, c3)), hn::Add(hn::Add(c4, c5), hn::Add(c6, c7)));
  const auto high = hn::Add(hn::Add(hn::Add(c8, c9), hn::Add(c10, c11)), hn::Add(hn::Add(c12, c13), hn::Add(c14, c15)));
  return hn::GetLane(hn::Add(low, high));
}

std::int64_t fma_lanes() { return static_cast<std::int64_t>(16 * hn::Lanes(hn::ScalableTag<float>())); }

// Four streams a quarter apart, each asked for ahead of time: a single stream leaves memory idle at page ends.
std::uint64_t read_bytes(const std::byte* bytes, std::int64_t count) {
  constexpr std::int64_t kStep = 256;
  constexpr std::int64_t kAhead = 2048;
  const hn::ScalableTag<std::uint64_t> d;
  const auto vector_bytes = static_cast<std::int64_t>(8 * hn::Lanes(d));
  const std::int64_t quarter = count / 4 / kStep * kStep;
  auto a = hn::Zero(d), b = a, e = a, f = a;
  for (std::int64_t i = 0; i < quarter; i += kStep) {
    for (std::int64_t j = 0; j < kStep; j += 64) {
      for (std::int64_t stream = 0; stream < 4; ++stream) hwy::Prefetch(bytes + stream * quarter + i + j + kAhead);
    }
    for (std::int64_t j = 0; j < kStep; j += vector_bytes) {
      const auto at = [&](std::int64_t stream) {
        return hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(bytes + stream * quarter + i + j));
      };
      a = hn::Or(a, at(0)), b = hn::Or(b, at(1)), e = hn::Or(e, at(2)), f = hn::Or(f, at(3));
    }
  }
  return hn::GetLane(hn::Or(hn::Or(a, b), hn::Or(e, f)));
}

// Four runs side by side, their first lines asked for four rounds ahead: the fastest order of those that were tried.
std::uint64_t read_runs(const std::byte* const* runs, std::int64_t count, std::int64_t run_bytes) {
  constexpr std::int64_t kAhead = 16;
  const hn::ScalableTag<std::uint64_t> d;
  const auto vector_bytes = static_cast<std::int64_t>(8 * hn::Lanes(d));
  auto a = hn::Zero(d), b = a, e = a, f = a;
  for (std::int64_t i = 0; i < count; i += 4) {
    for (std::int64_t j = i + kAhead; j < std::min(i + kAhead + 4, count); ++j) hwy::Prefetch(runs[j]);
    for (std::int64_t j = 0; j < run_bytes; j += vector_bytes) {
      const auto at = [&](std::int64_t stream) {  // past the last run, the last again
        return hn::LoadU(d, reinterpret_cast<const std::uint64_t*>(runs[std::min(i + stream, count - 1)] + j));
      };
      a = hn::Or(a, at(0)), b = hn::Or(b, at(1)), e = hn::Or(e, at(2)), f = hn::Or(f, at(3));
    }
  }
  return hn::GetLane(hn::Or(hn::Or(a, b), hn::Or(e, f)));
}

float largest(const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Set(d, values[0]), b = a, e = a, f = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    a = hn::Max(a, hn::LoadU(d, values + i)), b = hn::Max(b, hn::LoadU(d, values + i + lanes));
    e = hn::Max(e, hn::LoadU(d, values + i + 2 * lanes)), f = hn::Max(f, hn::LoadU(d, values + i + 3 * lanes));
  }
  float best = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(a, b), hn::Max(e, f))));
  for (; i < count; ++i) best = std::max(best, values[i]);
  return best;
}

}  // namespace seriatim::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/kernel_dispatch.hpp"

namespace seriatim::bench {
namespace {

HWY_EXPORT(fma_stretch);
HWY_EXPORT(fma_lanes);
HWY_EXPORT(read_bytes);
HWY_EXPORT(read_runs);
HWY_EXPORT(largest);

// What a worker does in one run. Waking one takes tens of microseconds, on a shared machine at times hundreds; until
// then the others do its part, and so there is ten times as much to do where there are others.
constexpr std::int64_t kSteps = 100000;
constexpr std::int64_t kWorkerBytes = std::int64_t{32} << 20;

std::int64_t longer(const Executor& executor) { return executor.concurrency() == 1 ? 1 : 10; }

template <typename Function>
class Each final : public Task {
 public:
  explicit Each(Function function) : function_(function) {}
  void perform(std::int64_t unit, int) override { function_(unit); }

 private:
  Function function_;
};

template <typename Function>
void on_every_worker(Executor& executor, Function function) {
  Each<Function> task(function);
  executor.run(executor.concurrency(), task);
}

// The reference has no vectors of its own; it is held against the fastest set's limits.
std::int64_t target_of(Kernels kernels) {
  return kernels.is_reference() ? Kernels::fastest().target() : kernels.target();
}

double rate(const Contestant& contestant, double amount, const Effort& effort) {
  return amount / interleave({contestant}, effort)[0].low_ns;
}

}  // namespace

Contestant FmaPeak::contestant() const {
  auto run = [target = target_of(kernels_), &executor = executor_] {
    on_every_worker(executor, [target, steps = kSteps * longer(executor)](std::int64_t unit) {
      const float result = SERIATIM_DISPATCH(fma_stretch, target)(steps, 0.25f + static_cast<float>(unit));
      consume(&result);
    });
  };
  return {"fma peak", run, {}};
}

double FmaPeak::fmas() const {
  return static_cast<double>(kSteps * longer(executor_) * SERIATIM_DISPATCH(fma_lanes, target_of(kernels_))() *
                             executor_.concurrency());
}

ReadPass::ReadPass(Kernels kernels, Executor& executor, std::int64_t bytes)
    : kernels_(kernels),
      executor_(executor),
      passes_(std::max<std::int64_t>(1, kWorkerBytes * longer(executor) * executor.concurrency() / bytes)),
      memory_(static_cast<std::size_t>(bytes), std::byte{1}) {}

double ReadPass::bytes() const { return static_cast<double>(passes_) * static_cast<double>(memory_.size()); }

Contestant ReadPass::contestant() const {
  auto run = [this] {
    const std::int64_t share = static_cast<std::int64_t>(memory_.size()) / executor_.concurrency();
    on_every_worker(executor_, [this, share](std::int64_t unit) {
      for (std::int64_t pass = 0; pass < passes_; ++pass) {
        const std::uint64_t result =
            SERIATIM_DISPATCH(read_bytes, target_of(kernels_))(memory_.data() + unit * share, share);
        consume(&result);
      }
    });
  };
  return {"read", run, {}};
}

namespace {

std::byte* huge_pages(std::int64_t bytes) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  void* memory = std::aligned_alloc(kHugePage, static_cast<std::size_t>(bytes));
#ifdef MADV_HUGEPAGE
  if (memory != nullptr) madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  return static_cast<std::byte*>(memory);
}

}  // namespace

ScatteredMemory::ScatteredMemory(std::int64_t size) : bytes(size), data(huge_pages(size), std::free) {
  if (data != nullptr) std::memset(data.get(), 1, static_cast<std::size_t>(size));
}

ScatteredPass::ScatteredPass(Kernels kernels, Executor& executor, const ScatteredMemory& memory, std::int64_t run_bytes,
                             std::int64_t runs)
    : kernels_(kernels), executor_(executor), run_bytes_(run_bytes) {
  if (memory.data == nullptr) return;
  const std::int64_t places = memory.bytes / run_bytes / runs;  // of which one is read
  std::uint32_t state = 1;
  for (std::int64_t run = 0; run < runs; ++run) {
    state = state * 1664525u + 1013904223u;
    runs_.push_back(memory.data.get() + (run * places + (state >> 8) % places) * run_bytes);
  }
}

double ScatteredPass::bytes() const {
  return static_cast<double>(static_cast<std::int64_t>(runs_.size()) * run_bytes_);
}

Contestant ScatteredPass::contestant() const {
  auto run = [this] {
    const auto count = static_cast<std::int64_t>(runs_.size());
    const std::int64_t workers = executor_.concurrency();
    on_every_worker(executor_, [this, count, workers](std::int64_t unit) {
      const std::int64_t first = unit * count / workers;
      const std::uint64_t result = SERIATIM_DISPATCH(read_runs, target_of(kernels_))(
          runs_.data() + first, (unit + 1) * count / workers - first, run_bytes_);
      consume(&result);
    });
  };
  return {"read runs", run, {}};
}

float max_scan(Kernels kernels, const float* values, std::int64_t count) {
  return SERIATIM_DISPATCH(largest, target_of(kernels))(values, count);
}

Limits measure_limits(Kernels kernels, Executor& executor, const Effort& effort) {
  Limits limits;
  limits.threads = executor.concurrency();
  const FmaPeak peak(kernels, executor);
  limits.fma_per_ns = rate(peak.contestant(), peak.fmas(), effort);
  const auto bandwidth = [&](std::int64_t bytes) {
    const ReadPass pass(kernels, executor, bytes * executor.concurrency());
    return rate(pass.contestant(), pass.bytes(), effort);
  };
  limits.dram_bytes_per_ns = bandwidth(std::int64_t{256} << 20);
  const ScatteredMemory memory(std::int64_t{256} << 20);
  const ScatteredPass runs(kernels, executor, memory, kGroupRunBytes, memory.bytes / kGroupRunBytes / 4);
  limits.runs_bytes_per_ns = rate(runs.contestant(), runs.bytes(), effort);
  limits.l3_bytes_per_ns = bandwidth(std::int64_t{4} << 20);
  limits.l2_bytes_per_ns = bandwidth(std::int64_t{256} << 10);
  return limits;
}

}  // namespace seriatim::bench
#endif  // HWY_ONCE
