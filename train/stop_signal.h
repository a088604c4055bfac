// SIGINT and SIGTERM as a wish to stop, which a loop looks at when it can.
#pragma once

#include <csignal>

namespace eddy {

// While alive, SIGINT and SIGTERM ask to stop; a second one ends the program at once.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

// Whether a signal asked to stop since the last StopOnSignal was made.
bool stop_requested();

}  // namespace eddy
