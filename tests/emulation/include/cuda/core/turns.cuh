// Replaces cuda/core/turns.cuh: the emulation's scheduler knows who waits for which turn.
#pragma once

#include <functional>

#include "tests/emulation/together.h"

namespace eddy::cuda {

class TurnCounter {
 public:
  explicit TurnCounter(unsigned* counter) : counter_(counter) {}

  bool has_come(unsigned turn) const { return *counter_ == turn; }
  void await(unsigned turn) {
    if (*counter_ > turn) emulation::stop("turn %u was passed on before its own wait", turn);
    const std::function<bool()> come = [&] { return has_come(turn); };
    if (!come()) emulation::wait_until(come);
  }
  void pass() { ++*counter_; }

 private:
  unsigned* counter_;
};

}  // namespace eddy::cuda
