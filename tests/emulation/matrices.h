// Matrices for the tests of emulated matrix instructions.
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
    x.mutable_data<float>()[i] = static_cast<float>((i * 37 + seed * 11 + i * i % 23) % 17 - 8);
  return x;
}

// How many entries of c differ from a [m, k] times b [k, n] or its transpose.
inline int wrong_entries(const Tensor& a, const Tensor& b, bool b_transposed, const Tensor& c) {
  const std::int64_t m = a.dim(0), k = a.dim(1), n = c.dim(1);
  int wrong = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (std::int64_t e = 0; e < k; ++e)
        sum += a.data<float>()[i * k + e] * b.data<float>()[b_transposed ? j * k + e : e * n + j];
      if (!(c.data<float>()[i * n + j] == sum)) ++wrong;
    }
  return wrong;
}

}  // namespace eddy::gpu_test
