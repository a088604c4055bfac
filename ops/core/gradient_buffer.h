// The buffer of an input's gradient, for kernels that write those of several inputs in one go.
#pragma once

#include "autograd/tape.h"

namespace eddy {

// tensor = beta * tensor + contribution is to be computed, with beta 0 or 1; undefined when nobody wants it.
struct GradientBuffer {
  Tensor tensor;
  float beta = 0;
};

// That of input k. The vjp must write it before it returns.
inline GradientBuffer gradient_buffer(VjpContext& context, int k) {
  GradientBuffer buffer;
  if (context.sink.needs(k))
    context.sink.into(k, [&buffer](const Tensor& tensor, float beta) { buffer = {tensor, beta}; });
  return buffer;
}

}  // namespace eddy
