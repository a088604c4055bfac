// What the two sources of the example attention share: the problem, and the version that is compiled for
// sm_90a alone.
#pragma once

#include <cstdint>

#include "tensor/base/dtype.h"

namespace eddy::example {

constexpr int H = 64;                            // numbers of a head
constexpr float kScale = 0.125f;                 // 1 / sqrt(H)
constexpr float kScale2 = kScale * 1.44269504f;  // the same for powers of 2: exp(x) = 2^(x / log 2)

// All [heads, time, H].
struct Attention {
  const bf16 *q, *k, *v;
  bf16* y;
  int time;
};

// Version 4. Runs on GPUs of compute capability 9.0.
void run_wgmma(const Attention& args, std::int64_t heads);

}  // namespace eddy::example
