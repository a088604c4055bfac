// The handler only notes the signal: nothing else is safe inside one.
#include "train/stop_signal.h"

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
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

StopOnSignal::~StopOnSignal() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

bool stop_requested() {
  return stop_signal != 0;
}

}  // namespace eddy
