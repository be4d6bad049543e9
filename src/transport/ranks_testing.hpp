// Runs one function per rank, each on a thread of its own.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "seriatim/transport.hpp"

namespace seriatim::transport_testing {

inline std::vector<Status> on_ranks(const ThreadTransports& ranks,
                                    const std::function<Status(std::shared_ptr<Transport>)>& work) {
  std::vector<Status> answers(static_cast<std::size_t>(ranks.size()));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank, end = ranks.at(rank)] { answers[static_cast<std::size_t>(rank)] = work(end); });
  for (std::thread& thread : threads) thread.join();
  return answers;
}

}  // namespace seriatim::transport_testing
