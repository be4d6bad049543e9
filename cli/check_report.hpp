// What `seriatim check` says: a table for people, an object for programs (docs/conformance.schema.json).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "seriatim/check.hpp"

namespace seriatim::cli {

// What was judged, besides the rows themselves.
struct Judged {
  std::string dump;
  std::string against;  // empty: none
};

std::string_view rule_name(RowRule rule);

// Why a promise could not be judged, or empty.
std::string not_judged(const Selection& selection, const CheckReport& report, Promise promise);

std::string table(const Judged& judged, const Selection& selection, const CheckReport& report, bool colour);
nlohmann::ordered_json conformance(const Judged& judged, const Selection& selection, const CheckReport& report);
std::string conformance_text(const nlohmann::ordered_json& object);

}  // namespace seriatim::cli
