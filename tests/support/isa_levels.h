// The instruction sets of the CPU kernels inside a test.
#pragma once

#include <doctest/doctest.h>

#include "ops/cpu/isa.h"

namespace eddy::test {

// Restores the instruction set in use when it goes.
class KeepIsaLevel {
 public:
  KeepIsaLevel() = default;
  ~KeepIsaLevel() { set_isa_level(before_); }
  KeepIsaLevel(const KeepIsaLevel&) = delete;
  KeepIsaLevel& operator=(const KeepIsaLevel&) = delete;

 private:
  IsaLevel before_ = isa_level();
};

// Calls `body` once on every instruction set that this machine has, the lowest first.
template <class Body>
void on_every_isa_level(Body&& body) {
  const KeepIsaLevel keep;
  for (int level = 0; level <= static_cast<int>(best_isa_level()); ++level) {
    set_isa_level(static_cast<IsaLevel>(level));
    CAPTURE(isa_name(isa_level()));
    body();
  }
}

}  // namespace eddy::test
