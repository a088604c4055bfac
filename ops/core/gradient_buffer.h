// The gradient buffer of an input, for kernels that write the gradients of several inputs at once.
#pragma once

#include "autograd/tape.h"

namespace eddy::detail {

// The kernel must compute tensor = beta * tensor + contribution, beta 0 or 1. Undefined: not needed.
struct GradientBuffer {
  Tensor tensor;
  float beta = 0;
};

// Returns the gradient buffer of input k. The vjp must write it before it returns.
inline GradientBuffer gradient_buffer(VjpContext& context, int k) {
  GradientBuffer buffer;
  if (context.sink.needs(k))
    context.sink.into(k, [&buffer](const Tensor& tensor, float beta) { buffer = {tensor, beta}; });
  return buffer;
}

}  // namespace eddy::detail
