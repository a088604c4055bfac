// bf16 by way of f32. bf16 is a type to store activations in: every op computes in f32, whatever device it
// runs on, and rounds its result once. A device with kernels that read and write bf16 does so inside the
// kernel. Elsewhere, and so on the CPU, an op is put together: its inputs widened, itself, its result
// narrowed; the gradients of the two casts do the rest. The CPU's results are thus what a device's are
// compared with.
//
//   Tensor op(x, weight) {
//     if (widens(x)) return narrowed(op(wide(x), wide(weight)));
//
// A parameter beside bf16 activations may be f32, and is then taken as it is, as its gradient is.
#pragma once

#include "ops/cast/cast.h"
#include "ops/core/checks.h"

namespace eddy {

// Whether an op with kernels for bf16 on other devices goes by way of f32.
inline bool widens(const Tensor& x) {
  return x.defined() && x.dtype() == Dtype::bf16 && x.device().type == DeviceType::cpu;
}
// Whether an op without such kernels does.
inline bool widens_anywhere(const Tensor& x) {
  return x.defined() && x.dtype() == Dtype::bf16;
}

// What ops compute in on such inputs, and keep for their gradients: f32 for bf16.
inline Dtype computed_in(const Tensor& x) {
  return x.dtype() == Dtype::bf16 ? Dtype::f32 : x.dtype();
}

// x in f32 where it is bf16, else x itself. The type that results of bf16 are computed in.
inline Tensor wide(const Tensor& x) {
  return widens_anywhere(x) ? cast(x, Dtype::f32) : x;
}
// The same for an operand that must be of x's dtype and device; it may be undefined.
inline Tensor wide_like(const char* op, const Tensor& x, const Tensor& operand) {
  if (operand.defined()) checks::same_kind(op, x, operand);
  return wide(operand);
}
// A parameter as kernels for bf16 activations read it: f32 beside bf16. It may be undefined.
inline Tensor wide_parameter(const Tensor& x, const Tensor& parameter) {
  return widens_anywhere(x) ? wide(parameter) : parameter;
}
// y in bf16.
inline Tensor narrowed(const Tensor& y) {
  return cast(y, Dtype::bf16);
}

}  // namespace eddy
