// The failures that all transports report in the same words.
#pragma once

#include <chrono>
#include <cstddef>

#include "base/format.hpp"
#include "seriatim/status.hpp"

namespace seriatim::transport {

// The longest that anything waits; more, added to the clock, would pass its range.
inline constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 3650);

inline Status peer_lost(int rank, std::string_view how) {
  return Status::error(Code::kPeerLost, "rank", formatted("rank {} {}", rank, how), {.index = rank});
}

inline Status no_such_rank(std::string_view argument, int rank, int size) {
  return Status::error(Code::kInvalidArgument, argument,
                       formatted("{}: rank {} is not another rank of {}", argument, rank, size), {.index = rank});
}

inline Status other_length(std::string_view argument, int from, std::size_t expected, std::size_t got) {
  return Status::error(Code::kInvalidArgument, argument,
                       formatted("{}: rank {} sent {} bytes where {} were expected", argument, from, got, expected),
                       {.index = from});
}

inline Status blocks_unfit(std::size_t block, int size, std::size_t blocks) {
  return Status::error(Code::kInvalidArgument, "blocks",
                       formatted("blocks: {} bytes do not hold {} blocks of {}", blocks, size, block));
}

inline Status no_memory(std::string_view argument) {
  return Status::error(Code::kOutOfMemory, argument, formatted("{}: the system refused memory", argument));
}

}  // namespace seriatim::transport
