// What the tool says of --mpi when it was built without MPI.
#include "ranks.hpp"

namespace seriatim::cli {

Result<std::unique_ptr<Ranks>> Ranks::start(std::chrono::milliseconds) {
  return Status::error(Code::kUnsupported, "mpi",
                       "mpi: this build is without MPI (scripts/setup mpi, then -DSERIATIM_MPI=on)");
}

}  // namespace seriatim::cli
