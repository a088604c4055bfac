// Products into existing memory, without gradients, on which matmul, linear and the ops with a fused product are
// built.
#pragma once

#include <cstdint>

#include "ops/core/parameter_cache.h"
#include "tensor/tensor.h"

namespace eddy {
class PackedWeights;
}

namespace eddy::detail {

struct ProductOptions {
  Tensor bias{};      // [n], added to every row; needs beta = 0
  bool relu = false;  // c becomes max(c, 0) last; needs beta = 0 and a contiguous c
  PackedWeights* loop_weights =
      nullptr;  // b is a weight that is used again (packed_weights.h); needs beta 0 or 1
  MatmulPrecision precision =
      MatmulPrecision::f32;  // of f32 factors; parameters among a and b may make it coarser
};

// Writes c = a b + beta c over the last two axes. c is not read if beta is 0.
//   c          contiguous, or with contiguous rows at any row stride
//   a, b       copied if gemm cannot read their strides
// dtypes: one for a and b; c has theirs, or f32 if theirs is bf16; the bias has c's.
void multiply_into(const Tensor& c, const Tensor& a, const Tensor& b, double beta,
                   const ProductOptions& options = {});

// Whether products on this device may add a residual stream.
bool fuses_products(Device device);
// Whether a product on x's device should add one of x's dtype: in bf16. There it costs nothing, and a norm of the sum
// reads the sum alone.
bool adds_in_products(const Tensor& x);
// Writes y = residual + x W^T + b over matrices; the bias may be undefined. The residual is added by the product where
// the device's library can, else by a kernel of its own: the same up to the order of sums and one rounding of bf16.
// shapes: y and residual [rows, out], x [rows, in], weight [out, in], bias [out].
void multiply_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const Tensor& bias);

// Returns x, or a copy if gemm cannot read its strides.
Tensor readable_by_gemm(const Tensor& x);

// Returns x [..., width] as [rows, width], row-major.
// aliasing: x's storage, or a copy if x is not contiguous.
Tensor flat_rows(const Tensor& x);

}  // namespace eddy::detail
