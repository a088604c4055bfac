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

// Fill `values` by the words of a key, computed in f64 on every platform, on all threads.
// Normals with mean 0, by Box and Muller's transform.
void fill_normal(std::vector<double>& values, const RandomKey& key, double deviation);
// The same; what lies beyond two standard deviations is drawn again, and the rest is widened so that its
// standard deviation is the one given.
void fill_truncated_normal(std::vector<double>& values, const RandomKey& key, double deviation);
// Uniform between -limit and limit.
void fill_uniform(std::vector<double>& values, const RandomKey& key, double limit);

}  // namespace eddy
