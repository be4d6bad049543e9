// The page and the picture of judged rows.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "seriatim/check.hpp"
#include "seriatim/status.hpp"

namespace seriatim::cli {

// One HTML file that needs nothing else: the report, the image, the scores of some rows, Chart.js and a script.
// Takes   the object that conformance() gives
// Gives   text below 2 MB, whatever the selection: 4,096 rows are drawn at most, and scores fill what is left
// Errors  of reading.
Result<std::string> page_of(const Selection& selection, const CheckReport& report, nlohmann::ordered_json conformance);

// The image of the rows alone, a pixel a column; few rows are drawn thicker. Errors  of reading. OutOfMemory.
Result<std::string> picture_of(const Selection& selection, const CheckReport& report);

}  // namespace seriatim::cli
