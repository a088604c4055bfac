// What several .cpp files of this folder share and nobody else needs.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace eddy {

// The last `rows` rows of x [batch, time, ...], copied: what the next segment finds in the cache.
inline Tensor last_rows(const Tensor& x, std::int64_t rows) {
  return raw::copy(raw::narrow(x, 1, x.dim(1) - rows, rows));
}

}  // namespace eddy
