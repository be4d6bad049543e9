// What the backend has done since the process began.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace seriatim::plugin {

struct Counters {
  std::atomic<std::uint64_t> top_k{0};        // nodes, those of chains left out
  std::atomic<std::uint64_t> indexer{0};      // nodes
  std::atomic<std::uint64_t> attention{0};    // nodes, those of chains left out
  std::atomic<std::uint64_t> pools{0};        // runs from the index cache to pooled keys
  std::atomic<std::uint64_t> chains{0};       // runs from pooled keys to the selection, or to the output of attention
  std::atomic<std::uint64_t> row_entries{0};  // that attention has read
  std::atomic<std::uint64_t> masked_entries{0};  // that it was offered: queries x cells
  std::atomic<std::uint64_t> left_to_ggml{0};    // nodes that were claimed and did not fit when they were computed
};

Counters& counters();

// One line: "seriatim: top_k 12, indexer 0, ...".
std::string counters_line();

}  // namespace seriatim::plugin
