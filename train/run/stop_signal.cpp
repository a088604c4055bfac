// The handler only sets a flag: hardly anything else is safe inside a signal handler.
#include "train/run/stop_signal.h"

namespace eddy {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_signal = 0;
  struct sigaction action {};
  action.sa_handler = [](int number) {
    if (stop_signal != 0) {
      std::signal(number, SIG_DFL);
      std::raise(number);
    }
    stop_signal = number;
  };
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &action, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) sigaction(SIGHUP, &before_[i], nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool stop_requested() {
  return stop_signal != 0;
}

}  // namespace eddy
