// Transport: moves bytes between the processes (ranks) that share one context. It never computes: what is reduced is
// reduced by the library, in its own order, so that no transport can change a bit.
//
// Seriatim brings three: threads of one process (here), MPI (seriatim/transport_mpi.hpp) and, from Python, gloo of
// torch.distributed. Another is one class of six functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "seriatim/status.hpp"

namespace seriatim {

// What one rank has sent since its transport was made; framing that a transport adds is not counted.
struct Traffic {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

// One rank's end. All ranks make the same collective calls (all_gather, broadcast) in the same order; messages from one
// rank to another arrive whole, once, and in the order in which they were sent. Messages may be empty.
//
// Errors of every call
//         PeerLost: another rank ended, failed or did not answer within the transport's timeout; index = its rank where
//         it is known. The transport is of no more use: every later call of this rank gives the same error at once.
//         InvalidArgument: a rank that is not there, or oneself; sizes that do not fit. A message of another length
//         than expected also, index = the rank it is from: it is taken, nothing is written, and the ranks stay in step.
//         OutOfMemory.
// Memory  bytes that are sent are copied before the call returns.
// Threads one call at a time per rank.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Takes   this rank's block; all ranks' blocks are equally long
  // Gives   blocks: size() blocks in rank order, this rank's included
  // Sends   size() - 1 messages
  // Errors  a block of another length: every rank is told so, and of the first rank whose block differs from its own
  virtual Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) = 0;

  // Does not wait for the receiver.
  virtual Status send(int to, std::span<const std::byte> bytes) = 0;
  virtual Status receive(int from, std::span<std::byte> bytes) = 0;

  // Takes   on `root` bytes that are sent; elsewhere as many are written
  // Sends   size() - 1 messages, all by `root`
  virtual Status broadcast(int root, std::span<std::byte> bytes) = 0;

  const Traffic& traffic() const { return traffic_; }

 protected:
  Traffic traffic_;
};

// Ranks within one process, each on a thread of its own: for tests, and for counting what larger groups would send.
class ThreadTransports {
 public:
  enum class Fault {
    kFail,  // the call that sends it fails, and the rank is lost to all others
    kDrop,  // it never arrives, and the ranks do not go on without it
  };

  // Takes   at least one rank; how long a call waits for another rank
  // Errors  InvalidArgument. OutOfMemory.
  static Result<ThreadTransports> make(int ranks, std::chrono::milliseconds timeout);
  ThreadTransports(ThreadTransports&&) noexcept;
  ThreadTransports& operator=(ThreadTransports&&) noexcept;
  ~ThreadTransports();

  int size() const;
  // The rank's end; it stays valid when this object is gone. The caller sees to it that the rank is there.
  std::shared_ptr<Transport> at(int rank) const;

  // What becomes of the rank's n-th message (0: the first that it sends). One fault is pending per rank.
  // Threads  before the rank's first call
  void at_message(int rank, std::int64_t n, Fault fault);

  // From now on as if the rank's process had ended: its calls fail, and those that wait for it.
  // Threads  any
  void lose(int rank);

 private:
  struct Hub;
  class End;
  explicit ThreadTransports(std::shared_ptr<Hub> hub);
  std::shared_ptr<Hub> hub_;
};

}  // namespace seriatim
