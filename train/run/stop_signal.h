// SIGINT, SIGTERM and SIGHUP (a closed terminal) as a wish to stop, which a loop looks at when it can.
#pragma once

#include <array>
#include <csignal>

namespace eddy {

// While alive, these signals ask to stop; a second one ends the program at once. SIGHUP stays ignored where
// it was, as under nohup.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// Whether a signal asked to stop since the last StopOnSignal was made.
bool stop_requested();

}  // namespace eddy
