// Signals as a request to stop, which a loop polls: Ctrl-C, SIGTERM, a closed terminal (SIGHUP), the warnings of
// batch systems (SIGUSR1, SIGUSR2), and the soft limit on CPU time (SIGXCPU).
#pragma once

#include <array>
#include <csignal>

namespace eddy::training {

// While it lives, these signals request a stop. Shells, `timeout` and service managers send several in a row, so
// further ones change nothing. Only a Ctrl-C at least two seconds after the first signal, when a person has waited,
// ends the program at once. A signal that was ignored before stays ignored. One object may live inside another's
// life: a stop that was requested stays requested.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
  static constexpr std::array<int, 6> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};
  std::array<struct sigaction, kSignals.size()> before_{};
};

// Whether a signal has requested a stop since the outermost StopOnSignal was made.
bool stop_requested();

}  // namespace eddy::training
