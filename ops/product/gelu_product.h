// The two products of an MLP whose activation is GELU, with the activation in the product's kernel. Only on a GPU, in
// bf16 with sums in f32; elsewhere they are composed (linear.cpp):
//
//   forward    z = x W^T + b                 act = gelu(z)
//   backward   dz = (dy W) gelu'(z)          sums of dz over blocks of rows, for the gradient of b
//
// In memory are z, rounded to bf16 before GELU reads it, act and dz. dy W is rounded to bf16, and in registers alone.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"

namespace eddy::detail {

// left is x or dy, [rows, depth]. The weight is [columns, depth] forward, and [depth, columns] backward. Strides are of
// rows, in numbers; what has no stride is contiguous.
struct GeluProductArgs {
  Dtype dtype;
  std::int64_t rows, columns, depth;
  const void* left;
  std::int64_t left_stride;
  const void* weight;
  std::int64_t weight_stride;
  const void* bias = nullptr;  // forward: [columns], or null
  void* z = nullptr;       // [rows, columns]: forward a result, or null where nobody wants it; backward read
  void* result = nullptr;  // [rows, columns]: act or dz
  float* sums = nullptr;   // backward: [summed_blocks(rows), columns] (partial_sums.h), or null
};
extern Slot<GeluProductArgs> gelu_product_forward_slot, gelu_product_backward_slot;

// Capability query: has the device such a kernel for this product, and is it chosen (set_gpu_kernels)? Of the product
// only the dtype, sizes, strides and what is read are known.
struct GeluProductQuery {
  const GeluProductArgs* product;
  bool* fits;  // the result
};
extern Slot<GeluProductQuery> gelu_product_supports_slot;

}  // namespace eddy::detail
