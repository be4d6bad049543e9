// SERIATIM_GGML: what the backend takes.
#pragma once

#include <optional>
#include <string_view>

namespace seriatim::plugin {

struct Options {
  bool top_k = true;
  bool attention = true;
  bool indexer = true;
  bool chains = true;

  bool none() const { return !top_k && !attention && !indexer && !chains; }
};

// "off": nothing; "topk": TOP_K; "attend": FLASH_ATTN_EXT too; "all", "": LIGHTNING_INDEXER and whole chains too.
// Gives   nothing for another word
std::optional<Options> options_named(std::string_view word);

// As the environment says it, read once; everything where it says nothing that is known.
const Options& options();

// Whether SERIATIM_GGML_COUNTERS asks for a line of counters whenever a context ends.
bool counters_wanted();

}  // namespace seriatim::plugin
