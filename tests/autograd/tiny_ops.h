// The smallest differentiable operations, for tests of the tape that must not depend on ops/: f64, equal
// shapes, plain loops.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "tensor/tensor.h"

namespace eddy::tiny {

template <class F>
Tensor map(const Tensor& x, F f) {
  const std::vector<double> in = x.to_vector<double>();
  Tensor y = Tensor::empty(x.shape(), Dtype::f64);
  for (std::size_t i = 0; i < in.size(); ++i) y.mutable_data<double>()[i] = f(in[i]);
  return y;
}

template <class F>
Tensor zip(const Tensor& a, const Tensor& b, F f) {
  const std::vector<double> left = a.to_vector<double>(), right = b.to_vector<double>();
  Tensor y = Tensor::empty(a.shape(), Dtype::f64);
  for (std::size_t i = 0; i < left.size(); ++i) y.mutable_data<double>()[i] = f(left[i], right[i]);
  return y;
}

inline Tensor vec(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}
inline Tensor leaf(const std::vector<double>& values) {
  return require_grad(vec(values));
}

inline Tensor scale(const Tensor& x, double factor) {
  return record("scale", {x}, map(x, [=](double v) { return v * factor; }), {}, [factor](VjpContext& c) {
    c.sink.accumulate(0, map(c.dy(), [=](double v) { return v * factor; }));
  });
}

// Hands the same dy to both inputs.
inline Tensor add(const Tensor& a, const Tensor& b) {
  return record("add", {a, b}, zip(a, b, [](double u, double v) { return u + v; }), {}, [](VjpContext& c) {
    if (c.sink.needs(0)) c.sink.accumulate(0, c.dy());
    if (c.sink.needs(1)) c.sink.accumulate(1, c.dy());
  });
}

inline Tensor mul(const Tensor& a, const Tensor& b) {
  const auto product = [](double u, double v) { return u * v; };
  return record("mul", {a, b}, zip(a, b, product), {a, b}, [product](VjpContext& c) {
    if (c.sink.needs(0)) c.sink.accumulate(0, zip(c.dy(), c.saved(1), product));
    if (c.sink.needs(1)) c.sink.accumulate(1, zip(c.dy(), c.saved(0), product));
  });
}

// The result is saved, not the input.
inline Tensor tanh(const Tensor& x) {
  const Tensor y = map(x, [](double v) { return std::tanh(v); });
  return record("tanh", {x}, y, {y}, [](VjpContext& c) {
    c.sink.accumulate(0, zip(c.dy(), c.saved(0), [](double d, double v) { return d * (1 - v * v); }));
  });
}

// Adds in place into the gradient, as a product does.
inline Tensor sum(const Tensor& x) {
  double total = 0;
  for (const double v : x.to_vector<double>()) total += v;
  return record("sum", {x}, Tensor::full({}, total, Dtype::f64), {}, [](VjpContext& c) {
    const double d = c.dy().item();
    c.sink.into(0, [&](const Tensor& dst, float beta) {
      for (std::int64_t i = 0; i < dst.elements(); ++i)
        dst.mutable_data<double>()[i] = d + (beta == 0 ? 0.0 : dst.data<double>()[i]);
    });
  });
}

inline Tensor slice(const Tensor& x, int axis, std::int64_t start, std::int64_t length) {
  return record("slice", {x}, raw::narrow(x, axis, start, length), {}, [=](VjpContext& c) {
    c.sink.slice(0, axis, start, length, [&](const Tensor& dst) { raw::add_into(dst, c.dy()); });
  });
}

// x and 2x: two results of one node.
inline std::pair<Tensor, Tensor> once_and_twice(const Tensor& x) {
  const Tensor once = map(x, [](double v) { return v; }), twice = map(x, [](double v) { return 2 * v; });
  record_many("once_and_twice", {x}, {once, twice}, {}, [](VjpContext& c) {
    c.sink.accumulate(0,
                      zip(c.dy_or_zeros(0), c.dy_or_zeros(1), [](double a, double b) { return a + 2 * b; }));
  });
  return {once, twice};
}

}  // namespace eddy::tiny
