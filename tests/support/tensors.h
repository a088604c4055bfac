// Tensors of tests and their comparison, on tensor/ and autograd/ alone.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "autograd/tape.h"
#include "tensor/tensor.h"

namespace eddy::test {

// The elements in row-major order as f64.
inline std::vector<double> numbers(const Tensor& x) {
  return raw::cast(raw::contiguous(detach(x)), Dtype::f64).to_vector<double>();
}

// from, from + 1, from + 2, ... in row-major order, in the dtype of T.
template <class T = double>
Tensor counted(const Shape& shape, std::type_identity_t<T> from = 0) {
  std::vector<T> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = from + static_cast<T>(i);
  return Tensor::from(values, shape);
}

// The largest difference of two elements at the same place; NaN when an element is.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = numbers(a), y = numbers(b);
  double worst = 0;
  for (std::size_t i = 0; i < x.size() && !std::isnan(worst); ++i)
    if (const double error = std::abs(x[i] - y[i]); !(error <= worst)) worst = error;
  return worst;
}

// Whether shape, dtype and every bit agree, or both are undefined.
inline bool equal_bits(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(raw::contiguous(a).raw_data(), raw::contiguous(b).raw_data(),
                     static_cast<std::size_t>(a.bytes())) == 0;
}

}  // namespace eddy::test
