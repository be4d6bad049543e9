// Any bytes are a selection dump or a Status; what is admitted is judged without a fault, and the same by every rule's
// order.
#include <span>

#include "seriatim/check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace seriatim;
  const auto selection = parse_selection(std::as_bytes(std::span(data, size)));
  if (!selection.ok()) return 0;
  bool set_conforms = false;
  bool arrival_conforms = false;
  for (const RowRule rule : {RowRule::kSet, RowRule::kArrival, RowRule::kRank, RowRule::kCanonical}) {
    CheckOptions options;
    options.rule = rule;
    const auto report = check(**selection, options);
    if (!report.ok()) return 0;
    std::int64_t faults = 0;
    for (const auto& count : report->counts) {
      if (count.faults > count.judged) __builtin_trap();
      faults += count.faults;
    }
    if (report->conforms() != (faults == 0)) __builtin_trap();
    // Each rule is stricter than the one before it; `rank` differs from `canonical`, and without scores asks no order.
    // A repeated row is judged by its entries, so a rule's order decides nothing there.
    if (rule == RowRule::kSet) set_conforms = report->conforms();
    if (rule == RowRule::kArrival) arrival_conforms = report->conforms();
    if (rule == RowRule::kArrival && arrival_conforms && !set_conforms) __builtin_trap();
    if (rule == RowRule::kCanonical && report->conforms() && !arrival_conforms) __builtin_trap();
  }
  return 0;
}
