// A decode over MPI processes, one of which can be made to end or to stop at any of its messages.
//
// fault_decode FOLDER TOKENS TIMEOUT_MS [RANK MESSAGE kill|stop]
// Goes on from the last save in FOLDER/saved, saves every 16 tokens and at the end. FOLDER/pid.RANK says who runs; the
// first rank appends "POSITION DIGEST" of what is committed to FOLDER/digests; a rank whose call ends in an error
// writes FOLDER/lost.RANK: how many milliseconds that call took, the code and the message.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "seriatim/transport_mpi.hpp"
#include "shard/decode_story.hpp"

using namespace seriatim;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::int64_t kSaveEvery = 16;

// The transport beneath, until this rank's `message`-th message: there the process gets a signal.
class Faulty final : public Transport {
 public:
  Faulty(std::shared_ptr<Transport> under, std::int64_t message, int signal)
      : under_(std::move(under)), message_(message), signal_(signal) {}

  int rank() const override { return under_->rank(); }
  int size() const override { return under_->size(); }

  // Message by message, so that the fault may fall between two of them.
  Status all_gather(std::span<const std::byte> block, std::span<std::byte> blocks) override {
    const std::size_t length = block.size();
    for (int step = 1; step < size(); ++step)
      if (Status s = send((rank() + step) % size(), block); !s.ok()) return s;
    Status refused;
    for (int from = 0; from < size(); ++from) {
      const auto part = blocks.subspan(static_cast<std::size_t>(from) * length, length);
      if (from == rank()) {
        std::ranges::copy(block, part.begin());
      } else if (Status s = receive(from, part); !s.ok()) {
        if (s.code() != Code::kInvalidArgument) return s;
        refused = s;
      }
    }
    return refused;
  }
  Status send(int to, std::span<const std::byte> bytes) override {
    if (traffic_.messages == message_) ::kill(::getpid(), signal_);
    ++traffic_.messages;
    return under_->send(to, bytes);
  }
  Status receive(int from, std::span<std::byte> bytes) override { return under_->receive(from, bytes); }
  Status broadcast(int root, std::span<std::byte> bytes) override {
    if (root != rank()) return receive(root, bytes);
    for (int step = 1; step < size(); ++step)
      if (Status s = send((rank() + step) % size(), bytes); !s.ok()) return s;
    return {};
  }

 private:
  std::shared_ptr<Transport> under_;
  std::int64_t message_;
  int signal_;
};

Status decode(std::shared_ptr<Transport> transport, const std::filesystem::path& folder, std::int64_t tokens,
              Clock::time_point& call) {
  const auto next_call = [&call] { call = Clock::now(); };
  auto group = Group::meet(std::move(transport), Call("decode"));
  if (!group.ok()) return group.status();
  const Geometry geometry = decode_story::geometry();
  ShardedCacheOptions options;
  options.cache.capacity_tokens = 1 << 20;
  options.cache.page_tokens = 64;
  auto cache = ShardedCache::create(geometry, std::move(options), *group);
  if (!cache.ok()) return cache.status();
  ShardedEngine engine(*Engine::host(), *group);

  const std::string saved = folder / "saved";
  std::filesystem::create_directories(saved);
  SequenceId user = 0;
  next_call();
  auto restored = (*cache)->restore(saved);
  if (restored.ok()) {
    user = restored->at(0).id;
  } else if (restored.status().code() == Code::kNotFound) {
    auto added = (*cache)->add();
    if (!added.ok()) return added.status();
    user = *added;
  } else {
    return restored.status();
  }
  const auto held = (*cache)->snapshot(user);
  if (!held.ok()) return held.status();
  std::ofstream digests;
  if (group->rank() == 0) digests.open(folder / "digests", std::ios::app);
  for (std::int64_t at = held->run().tokens; at < tokens; ++at) {
    next_call();
    const auto digest = decode_story::step(engine, **cache, user, decode_story::Token(geometry, at));
    if (!digest.ok()) return digest.status();
    if (digests.is_open()) digests << at << ' ' << *digest << std::endl;
    if ((at + 1) % kSaveEvery != 0 && at + 1 != tokens) continue;
    next_call();
    if (Status s = (*cache)->save(saved); !s.ok()) return s;
    if (Status s = (*cache)->rebalance(user); !s.ok()) return s;
  }
  return group->agree(Call("end"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 7) return 2;
  MPI_Init(&argc, &argv);
  const std::filesystem::path folder = argv[1];
  auto made = mpi_transport(MPI_COMM_WORLD, std::chrono::milliseconds(std::atoll(argv[3])));
  if (!made.ok()) return 2;
  std::shared_ptr<Transport> transport = *std::move(made);
  const std::string rank = std::to_string(transport->rank());
  std::ofstream(folder / ("pid." + rank)) << ::getpid() << std::endl;
  if (argc == 7 && rank == argv[4])
    transport = std::make_shared<Faulty>(transport, std::atoll(argv[5]),
                                         argv[6] == std::string_view("kill") ? SIGKILL : SIGSTOP);
  Clock::time_point call = Clock::now();
  const Status status = decode(transport, folder, std::atoll(argv[2]), call);
  if (!status.ok()) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - call);
    std::ofstream(folder / ("lost." + rank))
        << took.count() << ' ' << code_name(status.code()) << ' ' << status.message() << std::endl;
    std::_Exit(3);  // MPI_Finalize would wait for the rank that is lost
  }
  transport.reset();
  MPI_Finalize();
}
