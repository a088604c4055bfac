// Compares the memory after a launch of compiled code with that after the emulated launch.
//
// Both compute the same, and round differently: nvcc fuses a product and a sum, g++ does not; expf and tanhf are
// other approximations; products of matrices add in another order. So numbers are compared by what stored them:
//
//   st.f32, st.f64     |a - b| <= bound * (the largest size of the numbers around it)
//   st.u16             equal to the bit, or as bf16: the same, with bf16's bound
//   st.u32             equal to the bit, or as an f32 or a pair of bf16, whichever differ less: nvcc stores words where
//                      a number went through one
//   others             equal to the bit
//
// A NaN equals a NaN, and an infinity itself. Counters of turns are left out: the emulation has its own.
#pragma once

#include <string>

#include "tests/ptx/launches.h"

namespace ptx {

struct Difference {
  double worst = 0;   // in units of its bound: above 1 is an error
  std::string where;  // of the worst one; "" if all bits are equal
  bool equal() const { return where.empty(); }
};

// `program` is what ran: one that rounds to bf16 or TF32 has a wider bound for floats as well.
Difference compare(const RecordedLaunch& launch, GlobalMemory& after, const Program& program);

}  // namespace ptx
