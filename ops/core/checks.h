// Checks of arguments that many ops share. Each names the op in its error.
#pragma once

#include "ops/core/cpu_path.h"
#include "tensor/base/format.h"
#include "tensor/tensor.h"

namespace eddy::checks {

// Checks that x is a tensor and not an empty handle.
inline void defined(const char* op, const Tensor& x, const char* name = "input") {
  if (!x.defined()) fail<ValueError>("{}: {} is undefined", op, name);
}

// Checks that x is f32 or f64, in which kernels compute, or bf16 on a device whose kernels read it.
inline void floating(const char* op, const Tensor& x, const char* name = "input") {
  defined(op, x, name);
  const bool reads_bf16 = x.dtype() == Dtype::bf16 && !uses_cpu_path(x.device());
  if (x.dtype() != Dtype::f32 && x.dtype() != Dtype::f64 && !reads_bf16)
    fail<DtypeError>("{}: {} is {} (f32 or f64; cast it first: cast(x, Dtype::f32))", op, name,
                     dtype_name(x.dtype()));
}

// Checks that x is floating and has this axis; returns the axis counted from the first.
inline int axis(const char* op, const Tensor& x, int axis) {
  floating(op, x);
  if (axis < -x.rank() || axis >= x.rank())
    fail<ShapeError>("{}: there is no axis {} in {} (from {} to {})", op, axis, to_string(x.shape()),
                     -x.rank(), x.rank() - 1);
  return x.shape().normal_axis(axis);
}

// Checks that x is an arena: floating, and contiguous.
inline void arena(const char* op, const Tensor& x, const char* name = "input") {
  floating(op, x, name);
  if (!x.contiguous())
    fail<ValueError>("{}: {} {} has strides (row-major arenas only)", op, name, to_string(x.shape()));
}

// Checks that a and b have the same dtype and device.
inline void same_kind(const char* op, const Tensor& a, const Tensor& b) {
  defined(op, b);
  if (a.dtype() != b.dtype())
    fail<DtypeError>("{}: {} and {} (one dtype for all; cast one first: cast(x, Dtype::{}))", op,
                     dtype_name(a.dtype()), dtype_name(b.dtype()), dtype_name(a.dtype()));
  if (a.device() != b.device())
    fail<DeviceError>("{}: {} and {} (one device for all; nothing is copied silently)", op,
                      to_string(a.device()), to_string(b.device()));
}

// Checks that parameter p is on the device of the activations x and has their dtype, or is f32 beside bf16.
inline void parameter(const char* op, const Tensor& x, const Tensor& p) {
  defined(op, p);
  if (p.dtype() != x.dtype() && !(x.dtype() == Dtype::bf16 && p.dtype() == Dtype::f32))
    fail<DtypeError>("{}: {} and {} (one dtype for all, or parameters of f32 beside bf16)", op,
                     dtype_name(x.dtype()), dtype_name(p.dtype()));
  if (x.device() != p.device())
    fail<DeviceError>("{}: {} and {} (one device for all; nothing is copied silently)", op,
                      to_string(x.device()), to_string(p.device()));
}

}  // namespace eddy::checks

namespace eddy::detail {

// Operands that may be left out: an undefined tensor stands for none.
inline void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

// x, contiguous; undefined if x is.
inline Tensor contiguous_or_none(const Tensor& x) {
  return x.defined() ? raw::contiguous(x) : x;
}

// The shape of a reduction along an axis, which stays with one entry where it is kept.
inline Shape reduced_shape(const Shape& shape, int axis, bool keep) {
  return keep ? shape.with(axis, 1) : shape.without(axis);
}

}  // namespace eddy::detail
