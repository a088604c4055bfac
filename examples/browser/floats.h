// A tensor's numbers for the page, which knows floats alone.
#pragma once

#include <vector>

#include "ops/cast/cast.h"
#include "ops/views/views.h"

namespace eddy::browser {

// The elements of a floating tensor in f32, row by row.
inline std::vector<float> floats_of(const Tensor& x) {
  return raw::contiguous(raw::cast(x, Dtype::f32)).to_vector<float>();
}

}  // namespace eddy::browser
