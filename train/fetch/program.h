// Running another program without a shell: no word of its arguments is interpreted.
#pragma once

#include <string>
#include <vector>

namespace eddy::training {

struct ProgramEnd {
  bool found = true;    // there is a program of this name
  int status = -1;      // its exit status; -1 where it did not end by itself
  std::string problem;  // why it was not started, or what stopped it; empty when it exited
};

// Runs the program that the first word names, looked up in PATH, and waits for it. Its standard input and output are
// /dev/null, and with `quiet` its standard error too.
ProgramEnd run_program_quietly(const std::vector<std::string>& words, bool quiet = true);

}  // namespace eddy::training
