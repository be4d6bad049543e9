#include "bench/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace seriatim::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kShortestNs = 50e3;  // a timed stretch
constexpr std::int64_t kFewestRounds = 5;

double timed_ns(const Contestant& contestant, std::int64_t repeats) {
  if (contestant.prepare) contestant.prepare();
  const auto begin = Clock::now();
  for (std::int64_t i = 0; i < repeats; ++i) contestant.run();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / static_cast<double>(repeats);
}

// How often a short contestant must repeat, told by its second run: the first is cold. What must be prepared anew runs
// once.
std::int64_t repeats_for(const Contestant& contestant) {
  timed_ns(contestant, 1);
  const double once_ns = timed_ns(contestant, 1);
  if (contestant.prepare) return 1;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(kShortestNs / std::max(once_ns, 1.0))), 1, 10000);
}

Timing summarize(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&samples](double fraction) {
    return samples[static_cast<std::size_t>(fraction * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {at(0.5), at(0.1), at(0.9)};
}

}  // namespace

std::vector<Timing> interleave(const std::vector<Contestant>& contestants, const Effort& effort) {
  const std::size_t count = contestants.size();
  std::vector<std::int64_t> repeats;
  for (const Contestant& contestant : contestants) repeats.push_back(repeats_for(contestant));
  std::vector<std::vector<double>> samples(count);
  const auto begin = Clock::now();
  for (std::int64_t round = 0; round < effort.rounds; ++round) {
    if (round >= kFewestRounds && std::chrono::duration<double>(Clock::now() - begin).count() > effort.seconds) break;
    for (std::size_t turn = 0; turn < count; ++turn) {
      const std::size_t i = (turn + static_cast<std::size_t>(round)) % count;
      samples[i].push_back(timed_ns(contestants[i], repeats[i]));
    }
  }
  std::vector<Timing> timings;
  for (auto& s : samples) timings.push_back(summarize(std::move(s)));
  return timings;
}

void consume(const void* result) { asm volatile("" : : "r"(result) : "memory"); }

}  // namespace seriatim::bench
