// Honest timing on a shared, noisy machine: contestants take turns in one process, and medians are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace seriatim::bench {

struct Contestant {
  std::string name;
  std::function<void()> run;
  std::function<void()> prepare;  // untimed, before every timed run; may be empty
};

struct Timing {
  double median_ns = 0.0;
  double low_ns = 0.0;   // first decile
  double high_ns = 0.0;  // ninth decile
  // The relative width of the middle eight tenths.
  double spread() const { return median_ns > 0.0 ? (high_ns - low_ns) / median_ns : 0.0; }
};

struct Effort {
  double seconds = 1.0;        // for one measure, all contestants together
  std::int64_t rounds = 1000;  // at most; at least 5 are run whatever the time
};

// Every round runs each contestant once (short ones several times in a row, so that the clock's grain does not show),
// in an order that rotates from round to round. Gives one timing per contestant, of one run.
std::vector<Timing> interleave(const std::vector<Contestant>& contestants, const Effort& effort);

// Keeps a result alive that nobody reads.
void consume(const void* result);

}  // namespace seriatim::bench
