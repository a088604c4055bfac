// New tensors as free functions, with a dtype and a device of choice: f32 on the CPU unless told otherwise.
// Random ones are in tensor/random/random_tensors.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Returns a tensor of zeros, of ones, or of `value`.
// errors: OutOfMemoryError, DeviceError.
Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
Tensor ones(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = kCpu);
// Sizes without braces: the compiler asks for them.
template <std::integral Size, class... Sizes>
Tensor zeros(Size, Sizes...) {
  static_assert(sizeof(Size) == 0, "write the sizes in braces: zeros({2, 3})");
  return {};
}
// The same.
template <std::integral Size, class... Sizes>
Tensor ones(Size, Sizes...) {
  static_assert(sizeof(Size) == 0, "write the sizes in braces: ones({2, 3})");
  return {};
}
// The same with the shape, dtype and device of x.
// errors: OutOfMemoryError, DeviceError; ValueError when x is undefined.
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);

// Returns the identity matrix [n, n].
// errors: ShapeError when n < 0.
Tensor eye(std::int64_t n, Dtype dtype = Dtype::f32, Device device = kCpu);

// Returns begin, begin + step, ... as long as they are before `end`; with one number, 0, 1, ... before it.
// shapes: [ceil((end - begin) / step)], [0] when `end` is not after `begin`.
// dtypes: any; `arange(5, Dtype::i64)` makes indices.
// errors: ValueError when step is 0 or a number is not finite.
Tensor arange(double begin, double end, double step = 1, Dtype dtype = Dtype::f32, Device device = kCpu);
inline Tensor arange(double end, Dtype dtype = Dtype::f32, Device device = kCpu) {
  return arange(0, end, 1, dtype, device);
}

// Returns `count` numbers from `first` to `last`, equally far apart.
// shapes: [count].
// errors: ShapeError when count < 0; ValueError when a number is not finite.
Tensor linspace(double first, double last, std::int64_t count, Dtype dtype = Dtype::f32,
                Device device = kCpu);

// Returns the numbers given, as a scalar, as a vector or as rows of a matrix; the dtype is that of T:
// tensor({1.f, 2.f}) is f32, tensor({{1, 2}, {3, 4}}) is i32, and tensor({true, false}) a mask, u8.
// shapes: []; [count]; [rows, columns].
// errors: ShapeError when rows differ in length.
template <class T>
Tensor tensor(const std::vector<T>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  if constexpr (std::is_same_v<T, bool>)
    return Tensor::from(std::vector<std::uint8_t>(values.begin(), values.end()), shape);
  else
    return Tensor::from(values, shape);
}
// The same from a list.
template <class T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor(std::vector<T>(values));
}
// The same from one number: a scalar.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T value) {
  return raw::reshape(tensor(std::vector<T>{value}), {});
}
// Throws the error for rows that differ in length.
[[noreturn]] void rows_differ(std::int64_t first, std::int64_t other);
// The same from rows: a matrix.
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows) {
  const auto columns = static_cast<std::int64_t>(rows.size() == 0 ? 0 : rows.begin()->size());
  std::vector<T> values;
  for (const std::initializer_list<T>& row : rows) {
    const auto size = static_cast<std::int64_t>(row.size());
    if (size != columns) rows_differ(columns, size);
    values.insert(values.end(), row.begin(), row.end());
  }
  return raw::reshape(tensor(values), {static_cast<std::int64_t>(rows.size()), columns});
}

}  // namespace eddy
