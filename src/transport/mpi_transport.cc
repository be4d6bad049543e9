#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <list>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "seriatim/transport_mpi.hpp"
#include "transport/blocks.hpp"
#include "transport/faults.hpp"

namespace seriatim {
namespace {

using Clock = std::chrono::steady_clock;

// What stands before the bytes of a message.
struct Envelope {
  std::uint64_t number;  // of the message between these two ranks
  std::uint64_t bytes;
};

constexpr std::size_t kPieceBytes = std::size_t{1} << 30;  // MPI counts in int
constexpr int kTag = 0;

Status mpi_refused(std::string_view call, int error) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  return Status::error(Code::kIo, "communicator",
                       formatted("communicator: {}: {}", call,
                                 std::string_view(text.data(), static_cast<std::size_t>(std::max(length, 0)))));
}

// Spins for a moment, for a message that is about to come; then lets others run; then sleeps in short naps, because the
// ranks of an oversubscribed machine share its cores.
class Patience {
 public:
  explicit Patience(std::chrono::milliseconds timeout)
      : deadline_(Clock::now() + std::min(timeout, transport::kLongestWait)) {}

  // False when the time is up.
  bool wait() {
    constexpr int kSpins = 64;
    constexpr int kYields = 2000;
    ++turns_;
    if (turns_ <= kSpins) return true;
    if (turns_ <= kYields)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    return Clock::now() < deadline_;
  }

 private:
  Clock::time_point deadline_;
  int turns_ = 0;
};

struct Outgoing {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

// Buffers that MPI may still read or write, and that nobody will ever know to be free: those of broken transports.
void leave_to_mpi(std::list<Outgoing>&& buffers) {
  static auto* kept = new std::list<Outgoing>();
  kept->splice(kept->end(), buffers);
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::chrono::milliseconds timeout) : timeout_(timeout) {}  // NOLINT(google-explicit-constructor)

  ~MpiTransport() override {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && broken_.ok()) {
      for (Patience patience(timeout_); !progress() && patience.wait();) {
      }
    }
    const bool idle = outgoing_.empty();
    if (!idle) leave_to_mpi(std::move(outgoing_));
    if (idle && finalized == 0 && broken_.ok() && communicator_ != MPI_COMM_NULL) MPI_Comm_free(&communicator_);
  }

  Status open(MPI_Comm communicator) {
    MPI_Request request = MPI_REQUEST_NULL;
    // The duplicate is written when the request completes: here, which outlives the wait.
    if (int error = MPI_Comm_idup(communicator, &communicator_, &request); error != MPI_SUCCESS)
      return mpi_refused("MPI_Comm_idup", error);
    int done = 0;
    for (Patience patience(timeout_);;) {
      if (int error = MPI_Test(&request, &done, MPI_STATUS_IGNORE); error != MPI_SUCCESS)
        return mpi_refused("MPI_Comm_idup", error);
      if (done != 0) break;
      if (!patience.wait()) {
        pending_open_ = true;
        return Status::error(Code::kPeerLost, "communicator",
                             formatted("communicator: not all ranks came within {} ms", timeout_.count()));
      }
    }
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    sent_.resize(static_cast<std::size_t>(size_));
    taken_.resize(static_cast<std::size_t>(size_));
    return {};
  }
  // MPI still writes into this object: it must stay.
  bool pending_open() const { return pending_open_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override try {
    if (!broken_.ok()) return broken_;
    const std::size_t ranks = static_cast<std::size_t>(size_);
    if (blocks.size() / ranks != block.size() || blocks.size() % ranks != 0)
      return transport::blocks_unfit(block.size(), size_, blocks.size());
    // Neighbours first, so that not all ranks send to rank 0 at once.
    for (int step = 1; step < size_; ++step)
      if (Status s = push((rank_ + step) % size_, block); !s.ok()) return s;
    // Every rank's message is taken before the first that does not fit is reported, so that the ranks stay in step.
    std::vector<std::vector<std::byte>> taken(ranks);
    for (int from = 0; from < size_; ++from) {
      if (from == rank_) continue;
      if (Status s = take(from, taken[static_cast<std::size_t>(from)]); !s.ok()) return s;
    }
    return transport::lay_blocks(taken, rank_, block, blocks);
  } catch (const std::bad_alloc&) {
    return broken(transport::no_memory("blocks"));
  }

  Status send(int to, std::span<const std::byte> bytes) override try {
    if (!broken_.ok()) return broken_;
    if (!another(to)) return transport::no_such_rank("to", to, size_);
    return push(to, bytes);
  } catch (const std::bad_alloc&) {
    return broken(transport::no_memory("bytes"));
  }

  Status receive(int from, std::span<std::byte> bytes) override try {
    if (!broken_.ok()) return broken_;
    if (!another(from)) return transport::no_such_rank("from", from, size_);
    std::vector<std::byte> message;
    if (Status s = take(from, message); !s.ok()) return s;
    if (message.size() != bytes.size()) return transport::other_length("bytes", from, bytes.size(), message.size());
    std::ranges::copy(message, bytes.begin());
    return {};
  } catch (const std::bad_alloc&) {
    return broken(transport::no_memory("bytes"));
  }

  Status broadcast(int root, std::span<std::byte> bytes) override {
    if (!broken_.ok()) return broken_;
    if (root != rank_) return receive(root, bytes);
    for (int step = 1; step < size_; ++step)
      if (Status s = send((rank_ + step) % size_, bytes); !s.ok()) return s;
    return {};
  }

 private:
  bool another(int rank) const { return rank >= 0 && rank < size_ && rank != rank_; }

  Status broken(Status status) {
    broken_ = std::move(status);
    leave_to_mpi(std::move(outgoing_));
    return broken_;
  }

  // Lets MPI work; true when nothing is on its way any more.
  bool progress() {
    for (auto one = outgoing_.begin(); one != outgoing_.end();) {
      int done = 0;
      const bool over = MPI_Test(&one->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
      one = over ? outgoing_.erase(one) : std::next(one);
    }
    return outgoing_.empty();
  }

  // A copy of the bytes is on its way.
  Status push(int to, std::span<const std::byte> bytes) {
    progress();
    const Envelope envelope{sent_[static_cast<std::size_t>(to)]++, bytes.size()};
    std::size_t from = 0;
    bool first = true;
    do {
      const std::size_t count = std::min(kPieceBytes, bytes.size() - from);
      const std::size_t lead = first ? sizeof envelope : 0;
      Outgoing& piece = outgoing_.emplace_back();
      piece.bytes.resize(lead + count);
      if (first) std::memcpy(piece.bytes.data(), &envelope, sizeof envelope);
      std::ranges::copy(bytes.subspan(from, count), piece.bytes.begin() + static_cast<std::ptrdiff_t>(lead));
      const int error = MPI_Isend(piece.bytes.data(), static_cast<int>(piece.bytes.size()), MPI_BYTE, to, kTag,
                                  communicator_, &piece.request);
      if (error != MPI_SUCCESS) return broken(lost(to, "MPI_Isend", error));
      from += count;
      first = false;
    } while (from < bytes.size());
    ++traffic_.messages;
    traffic_.bytes += static_cast<std::int64_t>(bytes.size());
    return {};
  }

  // The next message from that rank, whatever its length.
  Status take(int from, std::vector<std::byte>& message) {
    std::vector<std::byte> piece;
    if (Status s = take_piece(from, piece); !s.ok()) return s;
    Envelope envelope{};
    if (piece.size() >= sizeof envelope) std::memcpy(&envelope, piece.data(), sizeof envelope);
    if (piece.size() < sizeof envelope || envelope.number != taken_[static_cast<std::size_t>(from)] ||
        piece.size() - sizeof envelope != std::min<std::uint64_t>(envelope.bytes, kPieceBytes))
      return broken(transport::peer_lost(from, "is out of step"));
    ++taken_[static_cast<std::size_t>(from)];
    message.assign(piece.begin() + sizeof envelope, piece.end());
    while (message.size() < envelope.bytes) {
      if (Status s = take_piece(from, piece); !s.ok()) return s;
      if (piece.empty() || piece.size() > envelope.bytes - message.size())
        return broken(transport::peer_lost(from, "is out of step"));
      message.insert(message.end(), piece.begin(), piece.end());
    }
    return {};
  }

  Status take_piece(int from, std::vector<std::byte>& piece) {
    Patience patience(timeout_);
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    for (int found = 0;;) {
      if (int error = MPI_Improbe(from, kTag, communicator_, &found, &handle, &status); error != MPI_SUCCESS)
        return broken(lost(from, "MPI_Improbe", error));
      if (found != 0) break;
      progress();
      if (!patience.wait()) return broken(late(from));
    }
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    std::list<Outgoing> incoming(1);  // MPI writes there, perhaps for longer than we wait
    Outgoing& one = incoming.front();
    one.bytes.resize(static_cast<std::size_t>(std::max(count, 0)));
    if (int error = MPI_Imrecv(one.bytes.data(), count, MPI_BYTE, &handle, &one.request); error != MPI_SUCCESS)
      return broken(lost(from, "MPI_Imrecv", error));
    for (int done = 0;;) {
      if (int error = MPI_Test(&one.request, &done, MPI_STATUS_IGNORE); error != MPI_SUCCESS)
        return broken(lost(from, "MPI_Imrecv", error));
      if (done != 0) break;
      progress();
      if (!patience.wait()) {
        leave_to_mpi(std::move(incoming));
        return broken(late(from));
      }
    }
    piece = std::move(one.bytes);
    return {};
  }

  Status late(int from) const {
    return transport::peer_lost(from, formatted("did not answer within {} ms", timeout_.count()));
  }
  static Status lost(int rank, std::string_view call, int error) {
    return transport::peer_lost(rank, formatted("is gone ({})", mpi_refused(call, error).message()));
  }

  std::chrono::milliseconds timeout_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  bool pending_open_ = false;
  int rank_ = 0;
  int size_ = 1;
  std::list<Outgoing> outgoing_;
  std::vector<std::uint64_t> sent_;   // messages to each rank
  std::vector<std::uint64_t> taken_;  // and from each
  Status broken_;
};

}  // namespace

Result<std::shared_ptr<Transport>> mpi_transport(MPI_Comm communicator, std::chrono::milliseconds timeout) try {
  if (timeout.count() < 1)
    return Status::error(Code::kInvalidArgument, "timeout",
                         formatted("timeout: {} ms is not positive", timeout.count()));
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized == 0 || finalized != 0)
    return Status::error(Code::kUnsupported, "communicator",
                         formatted("communicator: MPI is {}", finalized != 0 ? "finalized" : "not initialized"));
  if (communicator == MPI_COMM_NULL) return Status::error(Code::kInvalidArgument, "communicator", "communicator: null");
  int inter = 0;
  MPI_Comm_test_inter(communicator, &inter);
  if (inter != 0) return Status::error(Code::kInvalidArgument, "communicator", "communicator: an inter-communicator");
  auto made = std::make_shared<MpiTransport>(timeout);
  if (Status s = made->open(communicator); !s.ok()) {
    if (made->pending_open()) new std::shared_ptr<MpiTransport>(std::move(made));  // kept for MPI
    return s;
  }
  return std::shared_ptr<Transport>(std::move(made));
} catch (const std::bad_alloc&) {
  return transport::no_memory("communicator");
}

}  // namespace seriatim
