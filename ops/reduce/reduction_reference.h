// The reference of ops that reduce an axis, for their samples.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace eddy::detail {

// Returns y[o, i], combined over k from `start` and x[o, k, i] in rising order, in f64.
// shapes: x [.., n, ..] -> [.., ..].
template <class Combine>
Tensor reference_reduction(const Tensor& x, int axis, double start, Combine combine) {
  std::int64_t outer = 1, inner = 1;
  const std::int64_t count = x.dim(axis);
  for (int i = 0; i < axis; ++i) outer *= x.dim(i);
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.dim(i);
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> result(static_cast<std::size_t>(outer * inner), start);
  for (std::int64_t o = 0; o < outer; ++o)
    for (std::int64_t k = 0; k < count; ++k)
      for (std::int64_t i = 0; i < inner; ++i) {
        double& to = result[static_cast<std::size_t>(o * inner + i)];
        to = combine(to, values[static_cast<std::size_t>((o * count + k) * inner + i)]);
      }
  return Tensor::from(result, x.shape().without(axis));
}

}  // namespace eddy::detail
