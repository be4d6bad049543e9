// Binds check: rows of any engine, judged.
#include "seriatim/check.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <optional>
#include <string>

#include "arrays.hpp"
#include "bind.hpp"
#include "engine.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

using namespace nanobind::literals;

namespace seriatim::python {

namespace {

RowRule rule_named(const std::string& name) {
  if (name == "canonical") return RowRule::kCanonical;
  if (name == "set") return RowRule::kSet;
  if (name == "rank") return RowRule::kRank;
  if (name == "arrival") return RowRule::kArrival;
  refuse("rule", "none of 'canonical', 'set', 'rank' and 'arrival'");
}

RowUnit unit_named(const std::string& name) {
  if (name == "token") return RowUnit::kToken;
  if (name == "group") return RowUnit::kGroup;
  refuse("unit", "neither 'token' nor 'group'");
}

nb::str text_of(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::dict finding_dict(const Finding& finding) {
  nb::dict dict;
  dict["row"] = finding.row;
  dict["promise"] = text_of(promise_name(finding.promise));
  dict["entry"] = finding.entry;
  dict["entries"] = finding.entries;
  dict["token"] = finding.token;
  dict["group"] = finding.group;
  dict["other"] = finding.other;
  dict["score"] = finding.scored ? nb::object(nb::float_(static_cast<double>(finding.score))) : nb::object(nb::none());
  dict["other_score"] =
      finding.scored ? nb::object(nb::float_(static_cast<double>(finding.other_score))) : nb::object(nb::none());
  dict["margin"] = finding.scored ? nb::object(nb::float_(finding.margin)) : nb::object(nb::none());
  dict["what"] = text_of(finding.what);
  return dict;
}

nb::dict report_dict(const CheckReport& report) {
  nb::dict dict;
  dict["rows"] = report.rows;
  dict["faulty_rows"] = report.faulty_rows;
  dict["near_rows"] = report.near_rows;
  dict["largest_near"] = report.largest_near;
  nb::dict judged;
  nb::dict faults;
  for (std::size_t i = 0; i < kPromises; ++i) {
    const auto promise = static_cast<Promise>(i);
    judged[text_of(promise_name(promise))] = report.of(promise).judged;
    faults[text_of(promise_name(promise))] = report.of(promise).faults;
  }
  dict["judged"] = judged;
  dict["faults"] = faults;
  nb::list findings;
  for (const Finding& finding : report.findings) findings.append(finding_dict(finding));
  dict["findings"] = findings;
  return dict;
}

nb::dict check_rows(nb::handle rows, nb::handle visible, nb::handle scores, std::int64_t group_tokens,
                    std::int64_t budget_tokens, std::int64_t anchor, const std::string& unit, const std::string& rule,
                    double margin, std::int64_t findings) {
  const Input rows_in = input(rows, "rows", 2);
  const Input scores_in = input(scores, "scores");
  const std::vector<std::int64_t> counts = integers(visible, "visible");
  Selection::About about;
  about.group_tokens = group_tokens;
  about.budget_tokens = budget_tokens;
  about.anchor = anchor;
  about.unit = unit_named(unit);
  CheckOptions options;
  options.rule = rule_named(rule);
  options.margin = margin;
  options.findings_per_promise = findings;
  std::optional<Result<CheckReport>> report;
  {
    const Unlocked unlocked;
    const std::shared_ptr<Executor> threads = default_engine()->executor();
    options.executor = threads.get();
    const auto count = static_cast<std::int64_t>(counts.size());
    const auto selection = view_selection(
        {rows_in.view, dense_view(static_cast<const void*>(counts.data()), DType::kI64, {count}), scores_in.view, {}},
        std::move(about));
    report.emplace(selection.ok() ? seriatim::check(**selection, options) : Result<CheckReport>(selection.status()));
  }
  check(report->status());
  return report_dict(**report);
}

}  // namespace

void bind_check(nb::module_& module) {
  module.def("check_rows", &check_rows, "rows"_a, "visible"_a, "scores"_a.none(), "group_tokens"_a, "budget_tokens"_a,
             "anchor"_a, "unit"_a, "rule"_a, "margin"_a, "findings"_a);
  module.def(
      "explain",
      [](const std::string& name) {
        const auto promise = promise_named(name);
        if (!promise) refuse("promise", "none of those that check names");
        return std::string(promise_text(*promise));
      },
      "promise"_a, "What a promise of the rule demands and why, in a paragraph.");
}

}  // namespace seriatim::python
