// MPI as a transport (the library seriatim_mpi; find_package(seriatim COMPONENTS mpi)).
//
// Messages are non-blocking and polled, so that a rank that is late ends a call within the timeout. What MPI itself
// does when a process dies is the launcher's affair: Open MPI's mpirun ends the whole job, unless it was started with
// --enable-recovery; MPICH's mpiexec likewise, but for -disable-auto-cleanup. docs/sharding.md has what was seen.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>

#include "seriatim/status.hpp"
#include "seriatim/transport.hpp"

namespace seriatim {

// Collective over the communicator: it is duplicated, so that no message of the caller's meets one of ours.
// Takes   the caller's communicator (an intra-communicator; mpi4py's too, by its handle), which stays theirs; how long
//         a call waits for another rank
// Errors  InvalidArgument: timeout; MPI_COMM_NULL, an inter-communicator. Unsupported: MPI is not initialized, or
//         already finalized. PeerLost: the other ranks did not call within the timeout. OutOfMemory. Io: what MPI
//         refused, in its words.
// Memory  a message is held until MPI has delivered it. The destructor waits for that, at most the timeout. After
//         PeerLost the buffers and the duplicate are MPI's for good, and MPI_Finalize may wait for the lost rank: end
//         the process with MPI_Abort.
// Threads one call at a time, of a thread that may call MPI (MPI_THREAD_SERIALIZED where it is not the main thread).
Result<std::shared_ptr<Transport>> mpi_transport(MPI_Comm communicator, std::chrono::milliseconds timeout);

}  // namespace seriatim
