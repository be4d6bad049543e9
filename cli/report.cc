#include "report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/format.hpp"
#include "file/bytes.hpp"

namespace seriatim::cli {
namespace {

constexpr std::size_t kShownText = 400;  // of free text
constexpr Agreement kJudged[] = {Agreement::kExact, Agreement::kTie, Agreement::kNear, Agreement::kWrong};

double largest_margin(const Replay& replay, Agreement agreement) {
  double largest = 0.0;
  for (const RowVerdict& v : replay.verdicts) {
    if (v.agreement == agreement) largest = std::max(largest, v.margin);
  }
  return largest;
}

std::string verdict_line(const Replay& replay) {
  if (replay.count(Agreement::kNotGiven) == std::ssize(replay.verdicts)) return "the capture has no expected rows";
  std::string line =
      formatted("{} exact, {} tie, {} near, {} wrong", replay.count(Agreement::kExact), replay.count(Agreement::kTie),
                replay.count(Agreement::kNear), replay.count(Agreement::kWrong));
  if (replay.count(Agreement::kNear) > 0) {
    line += formatted(" (near: {:.2g} from the cut at most, {:.2g} admitted)", largest_margin(replay, Agreement::kNear),
                      replay.margin);
  }
  return line;
}

const RowVerdict* first_wrong(const Replay& replay, std::int64_t& query) {
  for (const RowVerdict& v : replay.verdicts) {
    query = (&v - replay.verdicts.data()) / replay.selections;
    if (v.agreement == Agreement::kWrong) return &v;
  }
  return nullptr;
}

std::string output_line(const Replay& replay) {
  if (!replay.output_compared) return "the capture has no expected output";
  return formatted("{:.3g} on the expected rows ({:.3g} admitted), {:.3g} on our own; relative to the largest |value|",
                   replay.difference_expected_rows, replay.output_bound, replay.difference_own_rows);
}

std::string ranks_line(const Replay& replay) {
  RankShare most;
  for (const RankShare& one : replay.ranks) {
    most.tokens = std::max(most.tokens, one.tokens);
    most.cache_bytes = std::max(most.cache_bytes, one.cache_bytes);
    most.messages += one.messages;
    most.sent_bytes += one.sent_bytes;
  }
  return formatted("{} with at most {} tokens in {} bytes each; {} messages of {} bytes together", replay.ranks.size(),
                   most.tokens, most.cache_bytes, most.messages, most.sent_bytes);
}

nlohmann::ordered_json verdict_object(const Capture& capture, const Replay& replay, std::int64_t row) {
  const RowVerdict& v = replay.verdicts[static_cast<std::size_t>(row)];
  const std::int64_t q = row / replay.selections;
  nlohmann::ordered_json object{{"query", q},
                                {"position", capture.query_positions[static_cast<std::size_t>(q)]},
                                {"verdict", agreement_name(v.agreement)}};
  if (replay.selections > 1) object["selection"] = row % replay.selections;
  if (v.agreement == Agreement::kNear) object["margin"] = v.margin;
  if (v.agreement == Agreement::kWrong) {
    object["group"] = v.group;
    object["reason"] = v.reason;
  }
  return object;
}

}  // namespace

std::string table(const std::string& path, const Capture& capture, const Replay& replay) {
  const Geometry& g = capture.geometry;
  std::string text;
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += formatted("{:<18}{}\n", name, value);
  };
  line("capture", file::shown_path(path));
  if (!capture.source.empty()) line("source", file::printable(capture.source, kShownText));
  line("geometry", formatted("groups of {}, budget {}; {} x {} heads of {} ({}); index {} heads of {} ({})",
                             g.group_tokens(), g.budget_tokens(), g.query_heads(), g.kv_heads(), g.head_dim(),
                             dtype_name(g.kv_dtype()), g.index_heads(), g.index_dim(), dtype_name(g.index_dtype())));
  line("tokens", formatted("{} from position {}", capture.tokens(), capture.anchor));
  line("queries", formatted("{}: {} dense rows, {} sparse", replay.queries, replay.done.dense_rows,
                            std::ssize(replay.verdicts) - replay.done.dense_rows));
  line("groups", formatted("{} scored, {} selected, {} dropped; {} row tokens read", replay.done.groups_scored,
                           replay.done.groups_selected, replay.groups_dropped, replay.done.row_tokens));
  line("rows", verdict_line(replay));
  std::int64_t query = 0;
  if (const RowVerdict* wrong = first_wrong(replay, query)) {
    line("first wrong", formatted("query {} at position {}: {}", query,
                                  capture.query_positions[static_cast<std::size_t>(query)], wrong->reason));
  }
  line("output difference", output_line(replay));
  line("bytes", formatted("keys and values {}, raw index keys {}, pooled keys {}, tables {}, scratch {}",
                          replay.bytes.keys_values, replay.bytes.raw_index_keys, replay.bytes.pooled_keys,
                          replay.bytes.tables, replay.scratch_bytes));
  if (!replay.ranks.empty()) line("ranks", ranks_line(replay));
  line("rows digest", replay.rows_digest);
  line("output digest", replay.output_digest);
  line("verdict", replay.agrees() ? "agrees" : "does not agree");
  return text;
}

std::string json(const std::string& path, const Capture& capture, const Replay& replay) {
  nlohmann::ordered_json object;
  object["capture"] = path;
  object["source"] = capture.source;
  object["agrees"] = replay.agrees();
  object["tokens"] = capture.tokens();
  object["anchor"] = capture.anchor;
  object["queries"] = replay.queries;
  object["dense_rows"] = replay.done.dense_rows;
  object["sparse_rows"] = std::ssize(replay.verdicts) - replay.done.dense_rows;
  object["groups"] = {{"scored", replay.done.groups_scored},
                      {"selected", replay.done.groups_selected},
                      {"dropped", replay.groups_dropped}};
  object["row_tokens"] = replay.done.row_tokens;
  auto& rows = object["rows"];
  for (const Agreement agreement : kJudged) rows[std::string(agreement_name(agreement))] = replay.count(agreement);
  rows["margin"] = replay.margin;
  auto& differing = rows["differing"] = nlohmann::ordered_json::array();
  for (std::int64_t row = 0; row < std::ssize(replay.verdicts); ++row) {
    const Agreement agreement = replay.verdicts[static_cast<std::size_t>(row)].agreement;
    if (agreement != Agreement::kExact && agreement != Agreement::kNotGiven)
      differing.push_back(verdict_object(capture, replay, row));
  }
  if (replay.output_compared) {
    object["output"] = {{"difference_expected_rows", replay.difference_expected_rows},
                        {"difference_own_rows", replay.difference_own_rows},
                        {"bound", replay.output_bound},
                        {"worst_query", replay.worst_query}};
  }
  object["bytes"] = {{"keys_values", replay.bytes.keys_values},
                     {"raw_index_keys", replay.bytes.raw_index_keys},
                     {"pooled_keys", replay.bytes.pooled_keys},
                     {"tables", replay.bytes.tables},
                     {"scratch", replay.scratch_bytes}};
  if (!replay.ranks.empty()) {
    auto& ranks = object["ranks"] = nlohmann::ordered_json::array();
    for (const RankShare& one : replay.ranks)
      ranks.push_back({{"tokens", one.tokens},
                       {"cache_bytes", one.cache_bytes},
                       {"messages", one.messages},
                       {"sent_bytes", one.sent_bytes}});
  }
  object["digests"] = {{"rows", replay.rows_digest}, {"output", replay.output_digest}};
  return object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace seriatim::cli
