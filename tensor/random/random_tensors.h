// Tensors of random numbers. Each function exists in two forms: with a key it is a pure function of the key;
// without one it draws from the default generator, anew at each call. On the CPU it takes the memory of the
// tensor alone; for a GPU the numbers are made there first.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "tensor/random/philox.h"
#include "tensor/tensor.h"

namespace eddy {

// Makes the draws that follow repeatable: call n after it draws the same numbers in every run. Without a call
// the seed is 0. The generator is shared by all threads; only its count of calls is state.
void manual_seed(std::uint64_t seed);
// Returns the key of the next draw of the default generator.
RandomKey next_random_key();

// Returns numbers from the normal distribution with mean 0 and standard deviation 1.
// dtypes: floating.
// errors: DtypeError; OutOfMemoryError; DeviceError.
Tensor randn(const Shape& shape, const RandomKey& key, Dtype dtype = Dtype::f32, Device device = kCpu);
Tensor randn(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
template <std::integral Size, class... Sizes>
Tensor randn(Size, Sizes...) {
  static_assert(sizeof(Size) == 0, "write the sizes in braces: randn({2, 3})");
  return {};
}

// Returns numbers uniform in [0, 1).
// dtypes: floating; all are exact in f32, and bf16 rounds them (1 can occur).
// errors: DtypeError; OutOfMemoryError; DeviceError.
Tensor rand(const Shape& shape, const RandomKey& key, Dtype dtype = Dtype::f32, Device device = kCpu);
Tensor rand(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);

// Returns integers uniform in [low, high).
// dtypes: i64 or i32.
// errors: ValueError unless low < high; DtypeError; OutOfMemoryError; DeviceError.
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, const RandomKey& key,
               Dtype dtype = Dtype::i64, Device device = kCpu);
Tensor randint(std::int64_t low, std::int64_t high, const Shape& shape, Dtype dtype = Dtype::i64,
               Device device = kCpu);

// Returns the numbers 0, 1, ... n - 1 in a random order; every order is equally likely. Slices of it are the batches of
// an epoch: index_select(x, 0, narrow(order, 0, at, batch)).
// shapes: [n].
// dtypes: i64.
// errors: ShapeError when n < 0; OutOfMemoryError; DeviceError.
Tensor randperm(std::int64_t n, const RandomKey& key, Device device = kCpu);
Tensor randperm(std::int64_t n, Device device = kCpu);

// Returns `count` places along the last axis of each row, drawn without replacement in proportion to the row's
// numbers, whose sum need not be 1: multinomial(softmax(logits), 1) draws a token for each row. The host draws, in f64.
// shapes: weights [..., n] -> [..., count].
// dtypes: floating -> i64.
// errors: ShapeError for a scalar, or unless 1 <= count <= n; ValueError for a number that is negative or not finite,
// and for a row with fewer than `count` numbers above 0; DtypeError; DeviceError.
Tensor multinomial(const Tensor& weights, std::int64_t count, const RandomKey& key);
Tensor multinomial(const Tensor& weights, std::int64_t count);

// Fill `values` by the words of a key, computed in f64 on every platform, on all threads.
// Normals with mean 0, by Box and Muller's transform.
void fill_normal(std::vector<double>& values, const RandomKey& key, double deviation);
// The same; what lies beyond two standard deviations is drawn again, and the rest is widened so that its
// standard deviation is the one given.
void fill_truncated_normal(std::vector<double>& values, const RandomKey& key, double deviation);
// Uniform between -limit and limit.
void fill_uniform(std::vector<double>& values, const RandomKey& key, double limit);

}  // namespace eddy
