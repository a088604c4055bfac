// The instruction sets of the CPU kernels inside a test.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>

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

// Calls `body` once on every instruction set with kernels of its own that this machine has, the lowest first.
// The levels above avx512 add only products that round their factors.
template <class Body>
void on_every_isa_level(Body&& body) {
  const KeepIsaLevel keep;
  for (int level = 0; level <= static_cast<int>(std::min(best_isa_level(), IsaLevel::avx512)); ++level) {
    set_isa_level(static_cast<IsaLevel>(level));
    CAPTURE(isa_name(isa_level()));
    body();
  }
}

// Lets products round their factors while it exists; on() tells whether this processor can. If not, the
// output says so.
class RoundedProducts {
 public:
  RoundedProducts() : on_(set_bf16_products(true)) {
    if (!on_) MESSAGE("not checked: products that round their factors need AVX512-BF16 or AMX");
  }
  ~RoundedProducts() { set_bf16_products(false); }
  RoundedProducts(const RoundedProducts&) = delete;
  RoundedProducts& operator=(const RoundedProducts&) = delete;
  bool on() const { return on_; }

 private:
  bool on_;
};

}  // namespace eddy::test
