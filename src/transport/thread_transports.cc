#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <vector>

#include "base/format.hpp"
#include "seriatim/transport.hpp"
#include "transport/blocks.hpp"
#include "transport/faults.hpp"

namespace seriatim {

using transport::peer_lost;

// What all ranks share: the messages on their way, one queue per pair of ranks.
struct ThreadTransports::Hub {
  Hub(int ranks, std::chrono::milliseconds limit)
      : size(ranks),
        timeout(limit),
        queues(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)),
        lost(static_cast<std::size_t>(ranks)),
        faults(static_cast<std::size_t>(ranks)) {}

  struct PendingFault {
    std::int64_t message = -1;  // -1: none
    Fault fault = Fault::kFail;
  };
  struct Message {
    std::int64_t number;
    std::vector<std::byte> bytes;
  };
  struct Queue {
    std::int64_t sent = 0;   // messages, dropped ones too
    std::int64_t taken = 0;  // the number that must come next
    std::deque<Message> messages;
  };

  Queue& queue(int from, int to) {
    return queues[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
  }

  void lose(int rank) {
    {
      const std::lock_guard lock(mutex);
      lost[static_cast<std::size_t>(rank)] = true;
    }
    changed.notify_all();
  }

  const int size;
  const std::chrono::milliseconds timeout;
  std::mutex mutex;
  std::condition_variable changed;  // a message came, or a rank was lost
  std::vector<Queue> queues;
  std::vector<bool> lost;
  std::vector<PendingFault> faults;
};

class ThreadTransports::End final : public Transport {
 public:
  End(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size; }

  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override try {
    if (!broken_.ok()) return broken_;
    const std::size_t ranks = static_cast<std::size_t>(size());
    if (blocks.size() / ranks != block.size() || blocks.size() % ranks != 0)
      return transport::blocks_unfit(block.size(), size(), blocks.size());
    for (int to = 0; to < size(); ++to) {
      if (to == rank_) continue;
      if (Status s = push(to, block); !s.ok()) return s;
    }
    // Every rank's message is taken before the first that does not fit is reported, so that the ranks stay in step.
    std::vector<std::vector<std::byte>> taken(ranks);
    for (int from = 0; from < size(); ++from) {
      if (from == rank_) continue;
      auto message = take(from);
      if (!message.ok()) return message.status();
      taken[static_cast<std::size_t>(from)] = *std::move(message);
    }
    return transport::lay_blocks(taken, rank_, block, blocks);
  } catch (const std::bad_alloc&) {
    return broken(transport::no_memory("blocks"));
  }

  Status send(int to, std::span<const std::byte> bytes) override {
    if (!broken_.ok()) return broken_;
    if (!another(to)) return transport::no_such_rank("to", to, size());
    return push(to, bytes);
  }

  Status receive(int from, std::span<std::byte> bytes) override {
    if (!broken_.ok()) return broken_;
    if (!another(from)) return transport::no_such_rank("from", from, size());
    auto message = take(from);
    if (!message.ok()) return message.status();
    if (message->size() != bytes.size()) return transport::other_length("bytes", from, bytes.size(), message->size());
    std::ranges::copy(*message, bytes.begin());
    return {};
  }

  Status broadcast(int root, std::span<std::byte> bytes) override {
    if (!broken_.ok()) return broken_;
    if (root != rank_) return receive(root, bytes);
    for (int to = 0; to < size(); ++to) {
      if (to == rank_) continue;
      if (Status s = push(to, bytes); !s.ok()) return s;
    }
    return {};
  }

 private:
  bool another(int rank) const { return rank >= 0 && rank < size() && rank != rank_; }

  Status broken(Status status) {
    broken_ = std::move(status);
    hub_->lose(rank_);  // this rank takes part no more: the others need not wait for it
    return broken_;
  }

  Status push(int to, std::span<const std::byte> bytes) try {
    std::vector<std::byte> message(bytes.begin(), bytes.end());
    {
      const std::lock_guard lock(hub_->mutex);
      if (hub_->lost[static_cast<std::size_t>(rank_)]) return broken_ = peer_lost(rank_, "has been lost");
      const Hub::PendingFault& fault = hub_->faults[static_cast<std::size_t>(rank_)];
      const bool struck = fault.message == traffic_.messages;
      Hub::Queue& queue = hub_->queue(rank_, to);
      if (!struck) queue.messages.push_back({queue.sent, std::move(message)});
      if (!struck || fault.fault == Fault::kDrop) {
        ++queue.sent;
        ++traffic_.messages;
        traffic_.bytes += static_cast<std::int64_t>(bytes.size());
        hub_->changed.notify_all();
        return {};
      }
    }
    return broken(peer_lost(rank_, formatted("failed to send its message {}", traffic_.messages)));
  } catch (const std::bad_alloc&) {
    return broken(transport::no_memory("bytes"));
  }

  // The next message from that rank. What was sent before the rank was lost still arrives.
  Result<std::vector<std::byte>> take(int from) {
    Status failure;
    {
      std::unique_lock lock(hub_->mutex);
      Hub::Queue& queue = hub_->queue(from, rank_);
      const auto is_lost = [&](int rank) { return hub_->lost[static_cast<std::size_t>(rank)]; };
      hub_->changed.wait_for(lock, std::min(hub_->timeout, transport::kLongestWait),
                             [&] { return !queue.messages.empty() || is_lost(from) || is_lost(rank_); });
      if (is_lost(rank_)) {
        failure = peer_lost(rank_, "has been lost");
      } else if (!queue.messages.empty() && queue.messages.front().number != queue.taken) {
        failure = peer_lost(from, "sent a message that did not arrive");
      } else if (!queue.messages.empty()) {
        auto bytes = std::move(queue.messages.front().bytes);
        queue.messages.pop_front();
        ++queue.taken;
        return bytes;
      } else if (is_lost(from)) {
        failure = peer_lost(from, "is gone");
      } else {
        failure = peer_lost(from, formatted("did not answer within {} ms", hub_->timeout.count()));
      }
    }
    return broken(std::move(failure));
  }

  std::shared_ptr<Hub> hub_;
  int rank_;
  Status broken_;
};

Result<ThreadTransports> ThreadTransports::make(int ranks, std::chrono::milliseconds timeout) try {
  constexpr int kMostRanks = 4096;
  if (ranks < 1 || ranks > kMostRanks)
    return Status::error(Code::kInvalidArgument, "ranks", formatted("ranks: {} is not 1 .. {}", ranks, kMostRanks));
  if (timeout.count() < 1)
    return Status::error(Code::kInvalidArgument, "timeout",
                         formatted("timeout: {} ms is not positive", timeout.count()));
  return ThreadTransports(std::make_shared<Hub>(ranks, timeout));
} catch (const std::bad_alloc&) {
  return transport::no_memory("ranks");
}

ThreadTransports::ThreadTransports(std::shared_ptr<Hub> hub) : hub_(std::move(hub)) {}
ThreadTransports::ThreadTransports(ThreadTransports&&) noexcept = default;
ThreadTransports& ThreadTransports::operator=(ThreadTransports&&) noexcept = default;
ThreadTransports::~ThreadTransports() = default;

int ThreadTransports::size() const { return hub_->size; }

std::shared_ptr<Transport> ThreadTransports::at(int rank) const { return std::make_shared<End>(hub_, rank); }

void ThreadTransports::at_message(int rank, std::int64_t n, Fault fault) {
  const std::lock_guard lock(hub_->mutex);
  hub_->faults[static_cast<std::size_t>(rank)] = {n, fault};
}

void ThreadTransports::lose(int rank) { hub_->lose(rank); }

}  // namespace seriatim
