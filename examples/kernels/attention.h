// Shared by attention.cu and attention_wgmma.cu: the arguments, and the version compiled only for sm_90a.
#pragma once

#include <cstdint>

#include "tensor/base/dtype.h"

namespace eddy::example {

constexpr int H = 64;                            // head size
constexpr float kScale = 0.125f;                 // 1 / sqrt(H)
constexpr float kScale2 = kScale * 1.44269504f;  // for base-2 exponentials: exp(x) = 2^(x / ln 2)

// All [heads, time, H].
struct Attention {
  const bf16 *q, *k, *v;
  bf16* y;
  int time;
};

// Version 4. Runs on GPUs of compute capability 9.0.
void run_wgmma(const Attention& args, std::int64_t heads);

}  // namespace eddy::example
