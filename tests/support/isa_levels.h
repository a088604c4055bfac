// The instruction sets of the CPU kernels inside a test.
#pragma once

#include <doctest/doctest.h>

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

// Calls `body` once on every instruction set with kernels of its own that this machine has, the lowest first. The other
// levels add only products that round their factors.
template <class Body>
void on_every_isa_level(Body&& body) {
  const KeepIsaLevel keep;
  for (const IsaLevel level : isa_levels()) {
    if (level > best_isa_level() || rounds_factors(level)) continue;
    set_isa_level(level);
    CAPTURE(isa_name(isa_level()));
    body();
  }
}

// Returns whether this processor has products that round their factors to bf16. If not, the output says so.
inline bool has_rounded_products() {
  const bool has = rounds_to_bf16(MatmulPrecision::bf16);
  if (!has) MESSAGE("not checked: products that round their factors need AVX512-BF16, AMX or BFMMLA");
  return has;
}

// Calls `body` once on every level whose products round their factors to bf16 that this machine has, and with the
// matrix instructions of amx, or of neon_bf16, emulated.
template <class Body>
void on_every_rounding_level(Body&& body) {
  const bool on_arm64 = isa_levels().back() == IsaLevel::neon_bf16;
  if (!on_arm64 && !has_rounded_products()) return;
  const KeepIsaLevel keep;
  const auto on = [&](IsaLevel level, bool emulated) {
    emulate_tiles(emulated);
    set_isa_level(level);
    CAPTURE(isa_name(level));
    CAPTURE(emulated);
    body();
  };
  if (on_arm64) {
    on(IsaLevel::neon_bf16, true);
    if (best_isa_level() == IsaLevel::neon_bf16) on(IsaLevel::neon_bf16, false);
    return;
  }
  on(IsaLevel::avx512_bf16, false);
  on(IsaLevel::amx, true);
  if (best_isa_level() >= IsaLevel::amx) on(IsaLevel::amx, false);
}

}  // namespace eddy::test
