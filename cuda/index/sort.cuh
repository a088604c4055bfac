// A stable sort of keys with their places, by the toolkit's radix sort.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy::cuda {

// Keys and places in the order of the keys; equal keys keep their order. Both are [n] of i32. Only the lowest
// `bits` bits of the keys count; keys must not be negative. n >= 1.
struct Sorted {
  Tensor keys, places;
};
Sorted sort_by_key(const Tensor& keys, const Tensor& places, int bits);

}  // namespace eddy::cuda
