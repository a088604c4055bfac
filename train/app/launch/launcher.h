// The processes that a launcher (mpirun, srun) started to share one run.
#pragma once

#include <memory>

#include "train/ranks/ranks.h"

namespace eddy::app {

// Returns the ranks of a launcher; null if it started one process, or there is none (train/ranks/launched.h). Starts
// MPI, once. With `choose_threads`, this process gets its share of the processors that it has in common with ranks of
// its host.
// errors: ConfigError when this build has no MPI, or MPI does not see the other processes.
std::unique_ptr<training::Ranks> ranks_of_launcher(bool choose_threads);

// Ends all ranks at once with this status, whatever they do.
[[noreturn]] void end_all_ranks(int status);

// Whether this build has MPI: its version, or why there is none.
const char* mpi_of_build();

}  // namespace eddy::app
