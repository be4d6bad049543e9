#include "check_report.hpp"

#include <cmath>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::cli {
namespace {

constexpr std::string_view kSchema = "seriatim/conformance/1";
constexpr std::int64_t kShownFindings = 12;
constexpr std::size_t kShownText = 400;  // of free text

// JSON has no infinities; they are written as words.
nlohmann::ordered_json number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

nlohmann::ordered_json finding_object(const Selection& selection, const Finding& finding) {
  nlohmann::ordered_json object{
      {"row", finding.row},     {"promise", promise_name(finding.promise)},
      {"entry", finding.entry}, {"entries", finding.entries},
      {"token", finding.token}, {"group", finding.group},
      {"other", finding.other}, {"visible", selection.about().visible[static_cast<std::size_t>(finding.row)]}};
  if (finding.scored) {
    object["score"] = number(static_cast<double>(finding.score));
    object["other_score"] = number(static_cast<double>(finding.other_score));
    object["margin"] = number(finding.margin);
  }
  object["what"] = finding.what;
  return object;
}

nlohmann::ordered_json arithmetic_object(const ArithmeticReport& a) {
  return {{"rows", a.rows},
          {"relative", number(a.relative)},
          {"relative_f64", number(a.relative_f64)},
          {"own_f64", number(a.own_f64)},
          {"ulp", number(a.ulp)},
          {"worst_row", a.worst_row},
          {"bound", a.bound}};
}

struct Paint {
  bool on;
  std::string operator()(std::string_view code, std::string_view text) const {
    return on ? formatted("\033[{}m{}\033[0m", code, text) : std::string(text);
  }
};

}  // namespace

std::string_view rule_name(RowRule rule) {
  switch (rule) {
    case RowRule::kCanonical:
      return "canonical";
    case RowRule::kSet:
      return "set";
    case RowRule::kRank:
      return "rank";
    case RowRule::kArrival:
      return "arrival";
  }
  return "unknown";
}

std::string not_judged(const Selection& selection, const CheckReport& report, Promise promise) {
  if (report.of(promise).judged > 0) return {};
  const Selection::About& about = selection.about();
  switch (promise) {
    case Promise::kMembership:
    case Promise::kTie:
      return about.has_scores ? "every row fits the budget" : "no scores";
    case Promise::kRepeat:
      return about.has_scores ? "no two rows have equal input" : "no scores";
    case Promise::kArithmetic:
      return about.output_heads == 0 ? "no outputs" : "no capture to compare with";
    case Promise::kOrder:
      return report.rule == RowRule::kSet ? "the rule is `set`" : "no scores to rank by";
    case Promise::kExpansion:
      return about.unit == RowUnit::kGroup ? "the rows hold groups" : "groups of one token";
    case Promise::kTail:
      return "no query has a raw tail";
    case Promise::kWidth:
      return "every row fits the budget";
    case Promise::kDense:
      return "no row fits the budget";
    case Promise::kRange:
    case Promise::kDuplicate:
      break;
  }
  return "nothing to judge";
}

std::string table(const Judged& judged, const Selection& selection, const CheckReport& report, bool colour) {
  const Paint paint{colour};
  const Selection::About& about = selection.about();
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += formatted("{:<12}{}\n", name, value);
  };
  line("dump", file::shown_path(judged.dump));
  if (!about.engine.empty()) line("engine", file::printable(about.engine, kShownText));
  if (!judged.against.empty()) line("against", file::shown_path(judged.against));
  line("rule", formatted("{}; groups of {}, budget {}, anchor {}{}", rule_name(report.rule), about.group_tokens,
                         about.budget_tokens, about.anchor,
                         report.margin > 0 ? formatted("; margin {:g}", report.margin) : ""));
  line("rows", formatted("{}, of {} {} each", report.rows, about.width,
                         about.unit == RowUnit::kGroup ? "groups" : "positions"));
  text += formatted("\n{:<12}{:>10}{:>10}\n", "promise", "judged", "faults");
  for (std::size_t i = 0; i < kPromises; ++i) {
    const auto promise = static_cast<Promise>(i);
    const CheckReport::Count& count = report.of(promise);
    const std::string why = not_judged(selection, report, promise);
    const std::string_view code = !why.empty() ? "2" : count.faults > 0 ? "31" : "32";
    text += paint(code, why.empty() ? formatted("{:<12}{:>10}{:>10}", promise_name(promise), count.judged, count.faults)
                                    : formatted("{:<12}not judged: {}", promise_name(promise), why));
    text += '\n';
  }
  if (report.near_rows > 0)
    text += formatted("{:<12}{:>10} rows differ within the margin, by {:.2g} at most\n", "near", report.near_rows,
                      report.largest_near);
  if (report.arithmetic) {
    const ArithmeticReport& a = *report.arithmetic;
    text += formatted(
        "\noutputs of {} rows: {:.3g} from ours ({:.3g} admitted; {:.3g} ulp of {} at a head's largest), {:.3g} from "
        "f64; ours {:.3g} from f64; worst in row {}\n",
        a.rows, a.relative, a.bound, a.ulp, dtype_name(a.dtype), a.relative_f64, a.own_f64, a.worst_row);
  }
  if (!report.findings.empty()) text += '\n';
  std::int64_t shown = 0;
  for (const Finding& finding : report.findings) {
    if (shown++ == kShownFindings) break;
    text += formatted("row {}: {}: {}\n", finding.row, paint("31", promise_name(finding.promise)),
                      file::printable(finding.what, kShownText));
  }
  if (std::ssize(report.findings) > kShownFindings)
    text += formatted("... and {} findings more (--json and --html have them)\n",
                      std::ssize(report.findings) - kShownFindings);
  text += '\n' +
          (report.conforms() ? paint("32;1", "conforms")
                             : paint("31;1", formatted("does not conform: {} of {} rows are at fault",
                                                       report.faulty_rows, report.rows))) +
          '\n';
  return text;
}

nlohmann::ordered_json conformance(const Judged& judged, const Selection& selection, const CheckReport& report) {
  const Selection::About& about = selection.about();
  nlohmann::ordered_json object{
      {"schema", kSchema},
      {"conforms", report.conforms()},
      {"dump", judged.dump},
      {"against", judged.against.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(judged.against)},
      {"engine", about.engine},
      {"rule", rule_name(report.rule)},
      {"unit", about.unit == RowUnit::kGroup ? "group" : "token"},
      {"group_tokens", about.group_tokens},
      {"budget_tokens", about.budget_tokens},
      {"anchor", about.anchor},
      {"margin", report.margin},
      {"rows", report.rows},
      {"width", about.width},
      {"faulty_rows", report.faulty_rows},
      {"near_rows", report.near_rows},
      {"largest_near", report.largest_near}};
  auto& counts = object["counts"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kPromises; ++i) {
    const auto promise = static_cast<Promise>(i);
    nlohmann::ordered_json count{{"judged", report.of(promise).judged}, {"faults", report.of(promise).faults}};
    if (const std::string why = not_judged(selection, report, promise); !why.empty()) count["not_judged"] = why;
    counts[std::string(promise_name(promise))] = std::move(count);
  }
  if (report.arithmetic) object["arithmetic"] = arithmetic_object(*report.arithmetic);
  auto& findings = object["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : report.findings) findings.push_back(finding_object(selection, finding));
  return object;
}

std::string conformance_text(const nlohmann::ordered_json& object) {
  return object.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace seriatim::cli
