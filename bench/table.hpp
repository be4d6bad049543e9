// What a measure says, and its two forms: the table for people and the JSON for programs.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/limits.hpp"
#include "bench/timing.hpp"

namespace seriatim::bench {

struct Measure {
  std::string name;
  Timing ours;
  double limit_ns = 0.0;            // 0: no limit is stated
  std::string limit;                // what the limit is
  double long_read_limit_ns = 0.0;  // what it would be if bytes that are scattered lay together; 0: they do
  std::vector<std::pair<std::string, Timing>> peers;
  std::string target;       // in words, as to_limit <= x; empty: stated only
  std::optional<bool> met;  // absent: nothing to meet
  // Of one thread's limits to several threads', where the measure is what threads give; else 0.
  double limits_ratio = 0.0;

  double to_limit() const { return limit_ns > 0.0 ? ours.median_ns / limit_ns : 0.0; }
  double times_slower(std::size_t peer) const { return peers[peer].second.median_ns / ours.median_ns; }
};

struct Machine {
  std::string cpu;
  std::string kernels;
  std::string build;
  std::string date;
  std::vector<Limits> limits;
};

// Prints a measure as soon as it is known.
void print_heading();
void print_measure(const Measure& measure);
std::string to_json(const Machine& machine, const std::vector<Measure>& measures);

}  // namespace seriatim::bench
