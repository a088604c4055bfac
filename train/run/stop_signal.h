// SIGINT, SIGTERM and SIGHUP (a closed terminal) as a request to stop, which a loop polls.
#pragma once

#include <array>
#include <csignal>

namespace eddy {

// While it lives, these signals request a stop; a second one ends the program at once. SIGHUP stays ignored
// if it was ignored before, as under nohup.
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

// Whether a signal has requested a stop since the last StopOnSignal was made.
bool stop_requested();

}  // namespace eddy
