// Checks that many ops share. Each names the op in its error.
#pragma once

#include "tensor/format.h"
#include "tensor/tensor.h"

namespace eddy::checks {

inline void defined(const char* op, const Tensor& x, const char* name = "input") {
  if (!x.defined()) fail<ValueError>("{}: {} is undefined", op, name);
}

// f32 or f64, the types the kernels compute in.
inline void floating(const char* op, const Tensor& x, const char* name = "input") {
  defined(op, x, name);
  if (x.dtype() != Dtype::f32 && x.dtype() != Dtype::f64)
    fail<DtypeError>("{}: {} is {} (f32 or f64; cast it first)", op, name, dtype_name(x.dtype()));
}

// One dtype and one device for both.
inline void same_kind(const char* op, const Tensor& a, const Tensor& b) {
  defined(op, b);
  if (a.dtype() != b.dtype())
    fail<DtypeError>("{}: {} and {} (one dtype for all; nothing is promoted silently)", op,
                     dtype_name(a.dtype()), dtype_name(b.dtype()));
  if (!(a.device() == b.device()))
    fail<DeviceError>("{}: {} and {} (one device for all; nothing is copied silently)", op,
                      to_string(a.device()), to_string(b.device()));
}

}  // namespace eddy::checks
