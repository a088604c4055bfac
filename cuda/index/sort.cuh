// A stable sort of numbers with their places, by the toolkit's own radix sort.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy::cuda {

// Keys and places in the order of the keys; equal keys stay in the order in which they came. Both [n] of i32.
// Only the lowest `bits` bits of the keys count, which must not be negative. n >= 1.
struct Sorted {
  Tensor keys, places;
};
Sorted sort_by_key(const Tensor& keys, const Tensor& places, int bits);

}  // namespace eddy::cuda
