#include "options.hpp"

#include <cstdlib>

namespace seriatim::plugin {
namespace {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

std::optional<Options> options_named(std::string_view word) {
  if (word == "off") return Options{false, false, false, false};
  if (word == "topk") return Options{true, false, false, false};
  if (word == "attend") return Options{true, true, false, false};
  if (word == "all" || word.empty()) return Options{};
  return std::nullopt;
}

const Options& options() {
  static const Options chosen = options_named(environment("SERIATIM_GGML")).value_or(Options{});
  return chosen;
}

bool counters_wanted() {
  const std::string_view value = environment("SERIATIM_GGML_COUNTERS");
  return !value.empty() && value != "0";
}

}  // namespace seriatim::plugin
