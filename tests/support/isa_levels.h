// The instruction sets of the CPU kernels inside a test.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/core/matmul_precision.h"
#include "ops/cpu/isa.h"

namespace eddy::test {

// Restores the instruction set in use when it goes.
class KeepIsaLevel {
 public:
  KeepIsaLevel() = default;
  ~KeepIsaLevel() {
    emulate_tiles(false);
    set_isa_level(before_);
  }
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

// Returns whether this processor has products that round their factors to bf16. If not, the output says so.
inline bool has_rounded_products() {
  const bool has = rounds_to_bf16(MatmulPrecision::bf16);
  if (!has) MESSAGE("not checked: products that round their factors need AVX512-BF16 or AMX");
  return has;
}

// Calls `body` once on every level whose products round their factors to bf16 that this machine has, and on level amx
// with its tiles emulated.
template <class Body>
void on_every_rounding_level(Body&& body) {
  if (!has_rounded_products()) return;
  const KeepIsaLevel keep;
  const auto on = [&](IsaLevel level, bool emulated) {
    emulate_tiles(emulated);
    set_isa_level(level);
    CAPTURE(isa_name(level));
    CAPTURE(emulated);
    body();
  };
  on(IsaLevel::avx512_bf16, false);
  on(IsaLevel::amx, true);
  if (best_isa_level() >= IsaLevel::amx) on(IsaLevel::amx, false);
}

}  // namespace eddy::test
