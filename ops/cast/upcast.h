// How ops take bf16. bf16 only stores activations: on every device an op computes in f32 and rounds its
// result once. GPU kernels that read and write bf16 convert inside the kernel. On the CPU, and for ops
// without such kernels, three ops are composed: cast the inputs to f32, run the op, cast the result to bf16.
// The casts also have gradients, so the backward follows. The CPU's results are the reference for the GPU's.
//
//   Tensor op(x, weight) {
//     if (must_upcast(x)) return downcast(op(upcast(x), upcast(weight)));
//
// A parameter beside bf16 activations may be f32; it and its gradient then stay f32.
#pragma once

#include "ops/cast/cast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"

namespace eddy {

// Whether an op that has bf16 kernels on the GPU must cast x to f32: x is bf16 on the CPU.
inline bool must_upcast(const Tensor& x) {
  return x.defined() && x.dtype() == Dtype::bf16 && uses_cpu_path(x.device());
}
// Whether an op without bf16 kernels must cast x to f32: x is bf16.
inline bool is_bf16(const Tensor& x) {
  return x.defined() && x.dtype() == Dtype::bf16;
}

// Returns the dtype that ops compute in and save for backward: f32 for bf16, else that of x.
inline Dtype compute_dtype(const Tensor& x) {
  return x.dtype() == Dtype::bf16 ? Dtype::f32 : x.dtype();
}

// Returns x as f32 if it is bf16, else x itself.
inline Tensor upcast(const Tensor& x) {
  return is_bf16(x) ? cast(x, Dtype::f32) : x;
}
// The same for an operand, which is checked to have x's dtype and device unless it is undefined.
inline Tensor upcast_like(const char* op, const Tensor& x, const Tensor& operand) {
  if (operand.defined()) checks::same_kind(op, x, operand);
  return upcast(operand);
}
// Returns a parameter in the dtype that bf16 kernels read: f32 if x is bf16. It may be undefined.
inline Tensor upcast_parameter(const Tensor& x, const Tensor& parameter) {
  return is_bf16(x) ? upcast(parameter) : parameter;
}
// Returns y as bf16.
inline Tensor downcast(const Tensor& y) {
  return cast(y, Dtype::bf16);
}

}  // namespace eddy
