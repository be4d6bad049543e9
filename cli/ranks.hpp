// The processes behind `seriatim run --mpi`.
#pragma once

#include <chrono>
#include <memory>

#include "seriatim/transport.hpp"

namespace seriatim::cli {

// Starts MPI, once per process, and ends it when the object goes.
class Ranks {
 public:
  // Errors  Unsupported: a build without MPI. Those of mpi_transport().
  static Result<std::unique_ptr<Ranks>> start(std::chrono::milliseconds timeout);
  virtual ~Ranks() = default;
  virtual std::shared_ptr<Transport> transport() = 0;
  // Ends this process and, where MPI can, all others: a rank was lost, and MPI would wait for it.
  [[noreturn]] virtual void abandon(int code) = 0;
};

}  // namespace seriatim::cli
