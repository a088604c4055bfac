// Running another program with limits, and taking what it prints: a compiler, or code that a student wrote, which may
// loop, print or allocate without end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace eddy::app {

struct Limits {
  double seconds = 10;
  std::int64_t memory_bytes = 0;        // of addresses; 0: none
  std::size_t output_bytes = 1u << 16;  // what is printed beyond that is lost
};

struct LimitedEnd {
  bool found = true;       // there is a program of this name
  bool timed_out = false;  // it was killed at the limit, with all that it had started
  int status = -1;         // its exit status; -1 where it did not exit
  int signal = 0;          // that ended it; 0: none
  std::string output;      // standard output and error, as they came

  bool good() const { return found && !timed_out && status == 0; }
};

// Runs the program that the first word names, looked up in PATH, without a shell, and waits for it. Its standard input
// is /dev/null.
// errors: IoError where no process can be started.
LimitedEnd run_limited(const std::vector<std::string>& words, const Limits& limits);

}  // namespace eddy::app
