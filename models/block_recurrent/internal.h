// Functions that only the .cpp files of this folder share.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// A copy of the last `rows` rows of x [batch, time, ...], for the cache of the next segment.
inline Tensor last_rows(const Tensor& x, std::int64_t rows) {
  return raw::copy(raw::narrow(x, 1, x.dim(1) - rows, rows));
}

}  // namespace eddy
