// A tensor as kernels see it: a pointer, sizes and strides (in elements). Trivially copyable, without
// ownership or autograd. Kernels take only views or plain argument structs.
#pragma once

#include <cstdint>

#include "tensor/base/host_device.h"

namespace eddy {

template <class T>
struct View {
  T* data = nullptr;
  int rank = 0;
  std::int64_t shape[6] = {};
  std::int64_t strides[6] = {};

  EDDY_HD_INLINE std::int64_t elements() const {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[i];
    return n;
  }
  // True when the elements lie in row-major order without gaps.
  EDDY_HD_INLINE bool contiguous() const {
    std::int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (shape[i] != 1 && strides[i] != expected) return elements() == 0;
      expected *= shape[i];
    }
    return true;
  }
};

template <class T>
using ConstView = View<const T>;

}  // namespace eddy
