// The precision of matrix products of f32 tensors. It is a property of parameters: a ParamStore is made with one, and
// every product of an op with such a parameter takes it, in the backward pass too. An op that multiplies activations by
// activations takes it as an argument or an option.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// To what a product may round f32 factors before it multiplies them; sums are f32. A device that lacks such products,
// or would not gain by them, computes in a finer precision. From fine to coarse:
//   f32    nothing is rounded
//   tf32   10 bits of mantissa, relative errors of up to 1e-3; on a GPU several times as fast. A CPU computes in f32
//   bf16   7 bits of mantissa, on a CPU with AVX512-BF16 or AMX some twice as fast; on ARM64 with BFMMLA, where nothing
//          was measured. Another CPU computes in f32, and a GPU, which has fast products for tensors of bf16, in tf32
// Products of f64 and of bf16 tensors are those of their dtype.
enum class MatmulPrecision : std::uint8_t { f32, tf32, bf16 };

// Returns the precision of the parameters that x views; f32 if x views none or is undefined.
MatmulPrecision matmul_precision(const Tensor& x);

// Returns the coarsest of `precision` and those of the tensors.
template <class... Tensors>
MatmulPrecision coarsest(MatmulPrecision precision, const Tensors&... tensors) {
  const auto take = [&precision](MatmulPrecision other) {
    precision = other > precision ? other : precision;
  };
  (take(matmul_precision(tensors)), ...);
  return precision;
}

// Returns whether the CPU's f32 products round their factors to bf16 at this precision: at bf16, if the level in use
// rounds_factors (ops/cpu/isa.h).
bool rounds_to_bf16(MatmulPrecision precision);

}  // namespace eddy
