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

// Runs of 2 KiB scattered in ascending order over 256 MiB, as a row's groups lie in a cache, each read once.
class ScatteredPass {
 public:
  ScatteredPass(Kernels kernels, Executor& executor);
  Contestant contestant() const;
  double bytes() const;

 private:
  Kernels kernels_;
  Executor& executor_;
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
  std::vector<const std::byte*> runs_;
};

// The largest element of an array by the same vectors: the least that a selection must read.
float max_scan(Kernels kernels, const float* values, std::int64_t count);

struct Limits {
  int threads = 1;
  double fma_per_ns = 0.0;
  double dram_bytes_per_ns = 0.0;
  double runs_bytes_per_ns = 0.0;  // from DRAM in scattered runs; for information, no limit is made of it
  double l3_bytes_per_ns = 0.0;
  double l2_bytes_per_ns = 0.0;
};
Limits measure_limits(Kernels kernels, Executor& executor, const Effort& effort);

}  // namespace seriatim::bench
