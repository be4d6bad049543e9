// The machine's own limits, measured in the process that is compared with them: fused multiply-adds per second and
// bytes read per second. Written with the same vector library as the kernels, for the same instruction set.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim::bench {

// A stretch of independent chains of fused multiply-adds on every worker, long enough that one who must wake up first
// still does its part.
class FmaPeak {
 public:
  FmaPeak(Kernels kernels, Executor& executor) : kernels_(kernels), executor_(executor) {}
  Contestant contestant() const;
  double fmas() const;  // of one run, all workers together
 private:
  Kernels kernels_;
  Executor& executor_;
};

// A pass of vector loads over `bytes`, cut evenly over the workers; a small amount is read several times over.
class ReadPass {
 public:
  ReadPass(Kernels kernels, Executor& executor, std::int64_t bytes);
  Contestant contestant() const;
  double bytes() const;  // read by one run, all workers together

 private:
  Kernels kernels_;
  Executor& executor_;
  std::int64_t passes_;
  std::vector<std::byte> memory_;
};

// Memory on huge pages, as a cache's own pages lie on.
struct ScatteredMemory {
  explicit ScatteredMemory(std::int64_t size);
  std::int64_t bytes;
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

// Runs scattered in ascending order over memory, as a row's groups lie in a cache, each read once, cut evenly over the
// workers. They are cold if the caller makes them so, or if they are more than a cache holds.
class ScatteredPass {
 public:
  // Takes   run_bytes: a multiple of 64; memory of at least runs * run_bytes, which outlives this
  ScatteredPass(Kernels kernels, Executor& executor, const ScatteredMemory& memory, std::int64_t run_bytes,
                std::int64_t runs);
  Contestant contestant() const;
  double bytes() const;

 private:
  Kernels kernels_;
  Executor& executor_;
  std::int64_t run_bytes_;
  std::vector<const std::byte*> runs_;
};

inline constexpr std::int64_t kGroupRunBytes = 8192;  // QSA's group in bf16

// The largest element of an array by the same vectors: the least that a selection must read.
float max_scan(Kernels kernels, const float* values, std::int64_t count);

struct Limits {
  int threads = 1;
  double fma_per_ns = 0.0;
  double dram_bytes_per_ns = 0.0;
  double runs_bytes_per_ns = 0.0;  // from DRAM in scattered runs of kGroupRunBytes
  double l3_bytes_per_ns = 0.0;
  double l2_bytes_per_ns = 0.0;
};
Limits measure_limits(Kernels kernels, Executor& executor, const Effort& effort);

}  // namespace seriatim::bench
