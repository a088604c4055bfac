// What a launcher (mpirun, srun) says in the environment of the processes that it starts.
#pragma once

namespace eddy::training {

struct Launched {
  int processes = 1;  // that were started together, this one included
  int number = 0;     // of this process among them
};

// Returns what the launcher of this process says; 1 process without a launcher, and with EDDY_ALONE=1. What a launched
// program starts inherits its variables, and independent programs may be started by one launcher: whether the processes
// reach each other is for MPI to tell (train/app/launch/launcher.h).
Launched launched();

// Refuses another EDDY_ALONE than 0 and 1. launched() takes it for 0, since reports of errors ask it too.
// errors: ConfigError.
void check_alone_variable();

}  // namespace eddy::training
