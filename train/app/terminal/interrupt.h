// Ctrl-C (SIGINT) as a request that a loop polls, and that ends a system call which waits. Other signals end the
// process as usual. train/process/stop_signal.h is for programs that end with the first one.
#pragma once

#include <csignal>

namespace eddy::app {

// While it lives, SIGINT sets a flag and does nothing else. At most one lives at a time.
class InterruptFlag {
 public:
  InterruptFlag();
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

 private:
  struct sigaction before_ {};
};

// Whether SIGINT came since the flag was last taken, and takes it.
bool is_interrupted();
bool take_interrupt();

}  // namespace eddy::app
