// The end of a gather, once every rank's message is there.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "seriatim/status.hpp"
#include "transport/faults.hpp"

namespace seriatim::transport {

// Takes   taken: a message of each rank, nothing at `rank`, whose block this is
// Gives   blocks: all ranks' blocks in rank order
// Errors  InvalidArgument: the first rank whose message is not as long as the block. Nothing is written.
inline Status lay_blocks(std::span<const std::vector<std::byte>> taken, int rank, std::span<const std::byte> block,
                         std::span<std::byte> blocks) {
  const auto own = static_cast<std::size_t>(rank);
  for (std::size_t from = 0; from < taken.size(); ++from) {
    if (from != own && taken[from].size() != block.size())
      return other_length("block", static_cast<int>(from), block.size(), taken[from].size());
  }
  for (std::size_t from = 0; from < taken.size(); ++from) {
    const std::span<const std::byte> bytes = from == own ? block : std::span<const std::byte>(taken[from]);
    std::ranges::copy(bytes, blocks.begin() + static_cast<std::ptrdiff_t>(from * block.size()));
  }
  return {};
}

}  // namespace seriatim::transport
