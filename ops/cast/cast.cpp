// The differentiable cast. The loops are those of raw::cast.
#include "ops/cast/cast.h"

#include "autograd/tape.h"
#include "ops/core/checks.h"

namespace eddy {

Tensor cast(const Tensor& x, Dtype dtype) {
  checks::defined("cast", x);
  if (x.dtype() == dtype) return x;
  const Tensor y = raw::cast(x, dtype);
  if (!is_floating(dtype)) return y;
  // Casting is the identity up to rounding, so is its gradient; the sink casts it to the dtype of x.
  return record("cast", {x}, y, {}, [](VjpContext& v) { v.sink.accumulate(0, v.dy()); });
}

}  // namespace eddy
