// The ops that are methods of Tensor too. Each method calls the function of its name and does nothing else.
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/views/views.h"

namespace eddy {

const Tensor Tensor::operator[](std::int64_t index) const {
  checks::defined("x[i]", *this);
  if (rank() == 0) fail<ShapeError>("x[i]: x is a scalar (item() reads it)");
  return eddy::select(*this, 0, index);
}

// For an op of x alone.
#define EDDY_METHOD(name)       \
  Tensor Tensor::name() const { \
    return eddy::name(*this);   \
  }
// For an op of x alone, and over one axis.
#define EDDY_REDUCTION(name)                       \
  EDDY_METHOD(name)                                \
  Tensor Tensor::name(int axis, bool keep) const { \
    return eddy::name(*this, axis, keep);          \
  }
EDDY_REDUCTION(sum)
EDDY_REDUCTION(mean)
EDDY_REDUCTION(max)
EDDY_REDUCTION(min)
EDDY_REDUCTION(argmax)
EDDY_REDUCTION(argmin)
EDDY_METHOD(exp)
EDDY_METHOD(log)
EDDY_METHOD(sqrt)
EDDY_METHOD(abs)
EDDY_METHOD(tanh)
EDDY_METHOD(sigmoid)
EDDY_METHOD(relu)
EDDY_METHOD(flatten)
EDDY_METHOD(squeeze)
#undef EDDY_REDUCTION
#undef EDDY_METHOD

Tensor Tensor::pow(double exponent) const {
  return eddy::pow(*this, exponent);
}
Tensor Tensor::clamp(double low, double high) const {
  return eddy::clamp(*this, low, high);
}
Tensor Tensor::matmul(const Tensor& other) const {
  return eddy::matmul(*this, other);
}
Tensor Tensor::reshape(const Shape& shape) const {
  return eddy::reshape(*this, shape);
}
Tensor Tensor::reshape(std::initializer_list<std::int64_t> sizes) const {
  return eddy::reshape(*this, sizes);
}
Tensor Tensor::transpose(int axis_a, int axis_b) const {
  return eddy::transpose(*this, axis_a, axis_b);
}
Tensor Tensor::permute(const std::vector<int>& axes) const {
  return eddy::permute(*this, axes);
}
Tensor Tensor::squeeze(int axis) const {
  return eddy::squeeze(*this, axis);
}
Tensor Tensor::unsqueeze(int axis) const {
  return eddy::unsqueeze(*this, axis);
}
Tensor Tensor::narrow(int axis, std::int64_t start, std::int64_t length) const {
  return eddy::narrow(*this, axis, start, length);
}
Tensor Tensor::select(int axis, std::int64_t index) const {
  return eddy::select(*this, axis, index);
}
Tensor Tensor::expand(const Shape& shape) const {
  return eddy::expand(*this, shape);
}

}  // namespace eddy
