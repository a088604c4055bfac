// The samples of ops that reduce an axis, and their reference.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ops/core/op_spec.h"
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

// The spec of an op over axis 1; `stream` names the numbers of its samples. The sample "large" is the last one.
inline OpSpec reduction_spec(const char* name, const char* formula, OpFunction run, OpFunction reference,
                             const char* stream) {
  const auto values = [stream](const Shape& shape) { return sample_normal(shape, stream); };
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"middle_axis", {values({2, 7, 5})}},
                  {"long_axis", {values({2, 301, 2})}},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_normal({3, 65}, stream, 1e6)}, false}};
  spec.roundings = 32;  // some 300 terms in 32 lanes and a fold of 5, with cancellation
  spec.bench = [stream] { return Tensors{sample_normal({4096, 1024}, stream)}; };
  return spec;
}

}  // namespace eddy::detail
