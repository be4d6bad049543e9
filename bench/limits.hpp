// The machine's own limits, measured in the process that is compared with them: fused multiply-adds per second and bytes
// read per second. Written with the same vector library as the kernels, for the same instruction set.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/timing.hpp"
#include "seriatim/executor.hpp"
#include "seriatim/kernels.hpp"

namespace seriatim::bench {

// A stretch of independent chains of fused multiply-adds on every worker.
class FmaPeak {
 public:
  FmaPeak(Kernels kernels, Executor& executor) : kernels_(kernels), executor_(executor) {}
  Contestant contestant() const;
  double fmas() const;  // of one run, all workers together
 private:
  Kernels kernels_;
  Executor& executor_;
};

// A pass of vector loads over `bytes`, cut evenly over the workers.
class ReadPass {
 public:
  ReadPass(Kernels kernels, Executor& executor, std::int64_t bytes);
  Contestant contestant() const;
  double bytes() const { return static_cast<double>(memory_.size()); }

 private:
  Kernels kernels_;
  Executor& executor_;
  std::vector<std::byte> memory_;
};

// The largest element of an array by the same vectors: the least that a selection must read.
float max_scan(Kernels kernels, const float* values, std::int64_t count);

struct Limits {
  int threads = 1;
  double fma_per_ns = 0.0;
  double dram_bytes_per_ns = 0.0;
  double l3_bytes_per_ns = 0.0;
  double l2_bytes_per_ns = 0.0;
};
Limits measure_limits(Kernels kernels, Executor& executor, const Effort& effort);

}  // namespace seriatim::bench
