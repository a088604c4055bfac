// The handler sets the flag; hardly anything else is safe in it.
#include "train/app/terminal/interrupt.h"

namespace eddy::app {
namespace {

volatile std::sig_atomic_t interrupted = 0;

}  // namespace

InterruptFlag::InterruptFlag() {
  interrupted = 0;
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = 1; };  // without SA_RESTART: a read that waits returns
  sigaction(SIGINT, &action, &before_);
}

InterruptFlag::~InterruptFlag() {
  sigaction(SIGINT, &before_, nullptr);
}

bool is_interrupted() {
  return interrupted != 0;
}

bool take_interrupt() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace eddy::app
