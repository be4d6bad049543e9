#include "page.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/format.hpp"
#include "page_assets.hpp"
#include "png.hpp"
#include "seriatim/check_picture.hpp"

namespace seriatim::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostRows = 4096;
constexpr std::int64_t kMostColumns = 512;
constexpr std::int64_t kPictureLines = 320;  // of --png, where there are fewer rows
constexpr std::int64_t kMostFindings = 1100;
constexpr std::int64_t kMostRanked = 1024;
constexpr std::size_t kDetailBytes = 400'000;
constexpr std::int64_t kMostDetails = 96;

// By Cell. They differ in lightness as well as in hue, and can be told apart on paper and in the dark.
constexpr std::array<Colour, kCells> kPalette{{{255, 255, 255, 0},
                                               {0xd9, 0xdd, 0xe3, 255},
                                               {0x8f, 0xb4, 0xdd, 255},
                                               {0x1f, 0x5f, 0xa8, 255},
                                               {0x2a, 0x8f, 0x6a, 255},
                                               {0xe0, 0x8a, 0x1e, 255}}};

std::string colour_name(const Colour& colour) {
  return formatted("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

// Each row as `lines` lines of pixels.
Result<std::string> encoded(const RowImage& image, std::int64_t lines) {
  std::vector<std::uint8_t> pixels;
  for (auto row = image.cells.begin(); row != image.cells.end(); row += image.columns) {
    for (std::int64_t line = 0; line < lines; ++line) pixels.insert(pixels.end(), row, row + image.columns);
  }
  const auto height = static_cast<std::uint32_t>(std::ssize(image.rows) * lines);
  std::string png = png_of(pixels, static_cast<std::uint32_t>(image.columns), height, kPalette);
  if (png.empty()) return Status::error(Code::kOutOfMemory, "png", "png: the system refused memory");
  return png;
}

Result<Json> image_object(const Selection& selection, const RowImage& image) {
  const auto png = encoded(image, 1);
  if (!png.ok()) return png.status();
  Json object{{"columns", image.columns}, {"tokens_per_column", image.tokens_per_column}};
  object["rows"] = image.rows;
  object["tokens"] = image.tokens;
  object["farthest"] = image.farthest;
  object["middle"] = image.middle;
  Json& overlap = object["overlap"] = Json::array();
  for (const double part : image.overlap)
    overlap.push_back(static_cast<double>(static_cast<std::int64_t>(part * 10'000 + (part < 0 ? -0.5 : 0.5))) / 10'000);
  Json& visible = object["visible"] = Json::array();
  for (const std::int64_t row : image.rows) visible.push_back(selection.about().visible[static_cast<std::size_t>(row)]);
  Json& palette = object["palette"] = Json::array();
  for (const Colour& colour : kPalette) palette.push_back(colour_name(colour));
  object["png"] = "data:image/png;base64," + base64(*png);
  return object;
}

Result<Json> detail_object(const Selection& selection, std::int64_t row) {
  const Selection::About& about = selection.about();
  const std::int64_t kept = about.budget_tokens / about.group_tokens;
  const auto detail = row_detail(selection, row, std::min(kMostRanked, kept + std::min<std::int64_t>(kept, 256)));
  if (!detail.ok()) return detail.status();
  Json object{{"row", row}, {"visible", about.visible[static_cast<std::size_t>(row)]}};
  object["entries"] = detail->entries;
  object["ranked"] = detail->ranked;
  Json& scores = object["scores"] = Json::array();
  for (const float score : detail->scores) scores.push_back(static_cast<double>(score));
  return object;
}

// The rows whose scores the page holds: those at fault first, then some of the others, as many as fit.
Result<Json> details_array(const Selection& selection, const CheckReport& report, const RowImage& image) {
  std::vector<std::int64_t> wanted;
  std::set<Promise> promises;
  for (const Finding& finding : report.findings) {
    if (promises.insert(finding.promise).second) wanted.push_back(finding.row);
  }
  for (const Finding& finding : report.findings) wanted.push_back(finding.row);
  const std::size_t step = std::max<std::size_t>(image.rows.size() / 16, 1);
  for (std::size_t i = 0; i < image.rows.size(); i += step) wanted.push_back(image.rows[image.rows.size() - 1 - i]);
  std::map<std::int64_t, Json> details;
  std::size_t bytes = 0;
  for (const std::int64_t row : wanted) {
    if (details.contains(row)) continue;
    auto detail = detail_object(selection, row);
    if (!detail.ok()) return detail.status();
    bytes += detail->dump().size();
    if (bytes > kDetailBytes || std::ssize(details) == kMostDetails) break;
    details.emplace(row, *std::move(detail));
  }
  Json array = Json::array();
  for (auto& [row, detail] : details) array.push_back(std::move(detail));
  return array;
}

// JSON that may stand inside a <script> element: no markup can begin or end in it.
std::string script_safe(const Json& object) {
  std::string safe;
  for (const char c :
       object.dump(-1, ' ', true, Json::error_handler_t::replace)) {  // ASCII alone: U+2028 is an escape, too
    if (c == '<' || c == '>' || c == '&') {
      safe += formatted("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      safe += c;
    }
  }
  return safe;
}

// The template with each @NAME@ replaced once; what is put in is not looked at again.
std::string filled(std::string_view page, const std::vector<std::pair<std::string_view, std::string_view>>& parts) {
  std::string text;
  for (const auto& [name, value] : parts) {
    const std::size_t at = page.find(name);
    text.append(page.substr(0, at)).append(value);
    page.remove_prefix(at + name.size());
  }
  return text.append(page);
}

}  // namespace

Result<std::string> page_of(const Selection& selection, const CheckReport& report, nlohmann::ordered_json conformance) {
  const auto image = draw_rows(selection, report, kMostRows, kMostColumns);
  if (!image.ok()) return image.status();
  auto drawn = image_object(selection, *image);
  if (!drawn.ok()) return drawn.status();
  auto details = details_array(selection, report, *image);
  if (!details.ok()) return details.status();
  Json& findings = conformance["findings"];
  while (std::ssize(findings) > kMostFindings) findings.erase(findings.size() - 1);
  const std::string data =
      script_safe({{"report", std::move(conformance)}, {"image", *std::move(drawn)}, {"details", *std::move(details)}});
  return filled(page_html(),
                {{"@CSS@", page_css()}, {"@DATA@", data}, {"@CHART@", chart_js()}, {"@SCRIPT@", page_js()}});
}

Result<std::string> picture_of(const Selection& selection, const CheckReport& report) {
  const auto image = draw_rows(selection, report, kMostRows, 2 * kMostColumns);
  if (!image.ok()) return image.status();
  return encoded(*image, std::max<std::int64_t>(kPictureLines / std::ssize(image->rows), 1));
}

}  // namespace seriatim::cli
