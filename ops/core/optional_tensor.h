// Operands that may be left out: an undefined tensor stands for none.
#pragma once

#include "tensor/tensor.h"

namespace eddy {

inline void* data_or_null(const Tensor& x) {
  return x.defined() ? x.raw_data() : nullptr;
}

// x, contiguous; undefined if x is.
inline Tensor contiguous_or_none(const Tensor& x) {
  return x.defined() ? raw::contiguous(x) : x;
}

}  // namespace eddy
