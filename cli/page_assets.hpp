// The files of cli/page/ and Chart.js, as they were when the tool was built (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace seriatim::cli {

std::string_view page_html();
std::string_view page_css();
std::string_view page_js();
std::string_view chart_js();

}  // namespace seriatim::cli
