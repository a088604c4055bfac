// New tensors.
#include "tensor/create.h"

#include <cmath>

#include "tensor/base/format.h"

namespace eddy {

namespace {

Tensor stepping(double first, double step, std::int64_t count, Dtype dtype, Device device = kCpu) {
  const Tensor x = Tensor::empty({count}, Dtype::f64);
  double* const values = x.mutable_data<double>();
  for (std::int64_t i = 0; i < count; ++i) values[i] = first + static_cast<double>(i) * step;
  return raw::to_device(raw::cast(x, dtype), device);
}

}  // namespace

Tensor zeros(const Shape& shape, Dtype dtype, Device device) {
  return Tensor::zeros(shape, dtype, device);
}
Tensor ones(const Shape& shape, Dtype dtype, Device device) {
  return Tensor::full(shape, 1, dtype, device);
}
Tensor full(const Shape& shape, double value, Dtype dtype, Device device) {
  return Tensor::full(shape, value, dtype, device);
}
Tensor zeros_like(const Tensor& x) {
  return Tensor::zeros(x.shape(), x.dtype(), x.device());
}
Tensor ones_like(const Tensor& x) {
  return Tensor::full(x.shape(), 1, x.dtype(), x.device());
}

Tensor eye(std::int64_t n, Dtype dtype, Device device) {
  const Tensor matrix = Tensor::zeros({n, n}, dtype, device);
  const std::int64_t along[] = {n + 1};
  raw::fill(Tensor::over(matrix.buffer(), 0, {n}, along, dtype), 1);
  return matrix;
}

Tensor arange(double begin, double end, double step, Dtype dtype, Device device) {
  if (step == 0 || !std::isfinite(begin) || !std::isfinite(end) || !std::isfinite(step))
    fail<ValueError>("arange: from {} to {} by {} (finite numbers, and a step other than 0)", begin, end,
                     step);
  const double count = std::ceil((end - begin) / step);
  if (count > 0x1p53)
    fail<OutOfMemoryError>("arange: from {} to {} by {} is more than 2^53 numbers", begin, end, step);
  return stepping(begin, step, count > 0 ? static_cast<std::int64_t>(count) : 0, dtype, device);
}

Tensor linspace(double first, double last, std::int64_t count, Dtype dtype, Device device) {
  if (!std::isfinite(first) || !std::isfinite(last))
    fail<ValueError>("linspace: from {} to {} (finite numbers)", first, last);
  const Tensor x =
      stepping(first, count > 1 ? (last - first) / static_cast<double>(count - 1) : 0, count, Dtype::f64);
  if (count > 1) x.mutable_data<double>()[count - 1] = last;
  return raw::to_device(raw::cast(x, dtype), device);
}

void rows_differ(std::int64_t first, std::int64_t other) {
  fail<ShapeError>("tensor: rows of {} and of {} numbers (all rows are equally long)", first, other);
}

}  // namespace eddy
