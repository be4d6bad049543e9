// Built where there is MPI.
#include <mpi.h>

#include <cstdlib>
#include <utility>

#include "ranks.hpp"
#include "seriatim/transport_mpi.hpp"

namespace seriatim::cli {
namespace {

class MpiRanks final : public Ranks {
 public:
  MpiRanks() {
    int provided = 0;  // this thread alone calls MPI, beside those of an executor
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  ~MpiRanks() override {
    transport_.reset();
    MPI_Finalize();
  }
  std::shared_ptr<Transport> transport() override { return transport_; }
  void abandon(int code) override {
    MPI_Abort(MPI_COMM_WORLD, code);
    std::_Exit(code);
  }
  Status open(std::chrono::milliseconds timeout) {
    auto made = mpi_transport(MPI_COMM_WORLD, timeout);
    if (!made.ok()) return made.status();
    transport_ = *std::move(made);
    return {};
  }

 private:
  std::shared_ptr<Transport> transport_;
};

}  // namespace

Result<std::unique_ptr<Ranks>> Ranks::start(std::chrono::milliseconds timeout) {
  auto ranks = std::make_unique<MpiRanks>();
  if (Status s = ranks->open(timeout); !s.ok()) {
    // MPI_Finalize would wait for the rank that did not come: the process ends without it.
    if (s.code() == Code::kPeerLost) (void)ranks.release();
    return s;
  }
  return std::unique_ptr<Ranks>(std::move(ranks));
}

}  // namespace seriatim::cli
