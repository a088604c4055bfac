// The program `eddy` as a function, for programs that add models and tasks of their own:
//
//   int main(int argc, char** argv) {
//     eddy::register_model<OwnCell>({"own_cells", "own_cell"}, "what it is");     // models/eddy/registry.h
//     eddy::training::register_task({"own_task", "what is predicted", make_own_task});      // train/tasks/task.h
//     return eddy::app::program(argc, argv);
//   }
#pragma once

namespace eddy::app {

// Runs a command line of `eddy` and returns the exit status: 0 success; 1 an error, with one line on standard error; 2
// an invalid command line. Some commands add 3 (failed) and 130 (interrupted). It sets how the process answers signals.
// It may be called again, one call after the other.
// errors: none; all are reported.
int program(int argc, char** argv);

}  // namespace eddy::app
