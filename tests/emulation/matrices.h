// Matrices that the tests of emulated matrix instructions multiply.
#pragma once

#include "tensor/tensor.h"

namespace eddy::gpu_test {

struct Matrices {
  const float *a, *b;
  float* c;
};

// Small whole numbers: sums of their products are exact.
inline Tensor whole(const Shape& shape, std::int64_t seed) {
  const Tensor x = Tensor::empty(shape, Dtype::f32);
  for (std::int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = static_cast<float>((i * 37 + seed * 11 + i * i % 23) % 17 - 8);
  return x;
}

}  // namespace eddy::gpu_test
