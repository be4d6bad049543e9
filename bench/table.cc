#include "bench/table.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/print.hpp"

namespace seriatim::bench {
namespace {

std::string time_text(double ns) {
  if (ns < 1e3) return formatted("{:.0f} ns", ns);
  if (ns < 1e6) return formatted("{:.2f} us", ns / 1e3);
  if (ns < 1e9) return formatted("{:.2f} ms", ns / 1e6);
  return formatted("{:.2f} s", ns / 1e9);
}

std::string verdict(const Measure& m) {
  std::string words = !m.met ? "" : *m.met ? "met" : "NOT MET";
  if (m.limits_ratio > 0.0) words += formatted(" (the limits' own ratio: {:.2f})", m.limits_ratio);
  return words;
}

}  // namespace

void print_heading() {
  print(stdout, "{:<58} {:>10} {:>7} {:>10} {:>7}  {:<32} {}\n", "measure", "median", "spread", "limit", "ratio",
        "target", "");
}

void print_measure(const Measure& m) {
  print(stdout, "{:<58} {:>10} {:>6.0f}% {:>10} {:>7}  {:<32} {}\n", m.name, time_text(m.ours.median_ns),
        100.0 * m.ours.spread(), m.limit_ns > 0.0 ? time_text(m.limit_ns) : "-",
        m.limit_ns > 0.0 ? formatted("{:.2f}", m.to_limit()) : "-", m.target, verdict(m));
  if (m.long_read_limit_ns > 0.0) {
    print(stdout, "    {:<54} {:>10} {:>7} {:>10} {:>7.2f}\n", "the limit if its bytes lay together", "", "",
          time_text(m.long_read_limit_ns), m.ours.median_ns / m.long_read_limit_ns);
  }
  for (std::size_t i = 0; i < m.peers.size(); ++i) {
    print(stdout, "    {:<54} {:>10} {:>6.0f}% {:>10} {:>6.1f}x\n", m.peers[i].first,
          time_text(m.peers[i].second.median_ns), 100.0 * m.peers[i].second.spread(), "", m.times_slower(i));
  }
  std::fflush(stdout);
}

std::string to_json(const Machine& machine, const std::vector<Measure>& measures) {
  nlohmann::ordered_json object;
  auto& about = object["machine"] = {
      {"cpu", machine.cpu}, {"kernels", machine.kernels}, {"build", machine.build}, {"date", machine.date}};
  for (const Limits& l : machine.limits) {
    about["limits"].push_back({{"threads", l.threads},
                               {"fma_per_ns", l.fma_per_ns},
                               {"dram_bytes_per_ns", l.dram_bytes_per_ns},
                               {"runs_bytes_per_ns", l.runs_bytes_per_ns},
                               {"l3_bytes_per_ns", l.l3_bytes_per_ns},
                               {"l2_bytes_per_ns", l.l2_bytes_per_ns}});
  }
  auto& list = object["measures"] = nlohmann::ordered_json::array();
  for (const Measure& m : measures) {
    nlohmann::ordered_json entry{
        {"name", m.name}, {"median_ns", m.ours.median_ns}, {"low_ns", m.ours.low_ns}, {"spread", m.ours.spread()}};
    entry["limit_ns"] = m.limit_ns > 0.0 ? nlohmann::ordered_json(m.limit_ns) : nlohmann::ordered_json();
    entry["limit"] = m.limit;
    if (m.long_read_limit_ns > 0.0) entry["long_read_limit_ns"] = m.long_read_limit_ns;
    entry["to_limit"] = m.limit_ns > 0.0 ? nlohmann::ordered_json(m.to_limit()) : nlohmann::ordered_json();
    auto& peers = entry["peers"] = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < m.peers.size(); ++i) peers[m.peers[i].first] = m.times_slower(i);
    entry["target"] = m.target;
    if (m.limits_ratio > 0.0) entry["limits_ratio"] = m.limits_ratio;
    entry["met"] = m.met ? nlohmann::ordered_json(*m.met) : nlohmann::ordered_json();
    list.push_back(std::move(entry));
  }
  return object.dump(2) + "\n";
}

}  // namespace seriatim::bench
