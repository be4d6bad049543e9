#include "counters.hpp"

#include "base/format.hpp"

namespace seriatim::plugin {

Counters& counters() {
  static Counters all;
  return all;
}

std::string counters_line() {
  const Counters& c = counters();
  return formatted(
      "seriatim: top_k {}, indexer {}, attention {}, pools {}, chains {}, row entries {} of {} offered, left to ggml "
      "{}",
      c.top_k.load(), c.indexer.load(), c.attention.load(), c.pools.load(), c.chains.load(), c.row_entries.load(),
      c.masked_entries.load(), c.left_to_ggml.load());
}

}  // namespace seriatim::plugin
