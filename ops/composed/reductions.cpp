// Formulas and gradients of the composed reductions.
#include "ops/composed/reductions.h"

#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

// With m the largest element, y = m + log(sum of e^(x - m)); dy/dx = e^(x - m) / the sum = e^(x - y). An infinite m is
// left out: -inf - -inf would be NaN. So is a y of -inf, where every share is 0.
Tensor logsumexp(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(logsumexp(upcast(x), axis, keep));
  const int a = checks::axis("logsumexp", x, axis);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Tensor values = detach(x), largest = max(values, a, true);
  const Tensor shift = where(abs(largest) == kInfinity, 0.0, largest);
  const Tensor kept = log(sum(exp(values - shift), a, true)) + shift;
  const Tensor y = raw::reshape(kept, reduced_shape(x.shape(), a, keep));
  return record("logsumexp", {x}, y, {x, kept}, [](VjpContext& v) {
    const Tensor &from = v.saved(0), &total = v.saved(1);
    const Tensor share = exp(from - where(total == -kInfinity, 0.0, total));
    v.sink.accumulate(0, raw::reshape(raw::contiguous(v.dy()), total.shape()) * share);
  });
}

// y = sum of (x - mean)^2 / (n - c). The mean's own derivative falls out, since the deviations sum to 0.
Tensor var(const Tensor& x, int axis, bool keep, double correction) {
  if (is_bf16(x)) return downcast(var(upcast(x), axis, keep, correction));
  const int a = checks::axis("var", x, axis);
  if (!(correction >= 0)) fail<ValueError>("var: correction {} (0 or more)", correction);
  const Tensor values = detach(x), middle = mean(values, a, true), deviation = values - middle;
  const double count = std::max(static_cast<double>(x.shape()[a]) - correction, 0.0);
  const Tensor y =
      raw::reshape(div(sum(deviation * deviation, a, true), count), reduced_shape(x.shape(), a, keep));
  return record("var", {x}, y, {x, middle}, [count](VjpContext& v) {
    const Tensor dy = div(raw::reshape(raw::contiguous(v.dy()), v.saved(1).shape()), count / 2);
    v.sink.accumulate(0, dy * (v.saved(0) - v.saved(1)));
  });
}
Tensor var(const Tensor& x) {
  checks::defined("var", x);
  return var(flatten(x), 0);
}

Tensor std(const Tensor& x, int axis, bool keep, double correction) {
  if (is_bf16(x)) return downcast(std(upcast(x), axis, keep, correction));
  return sqrt(var(x, axis, keep, correction));
}
Tensor std(const Tensor& x) {
  checks::defined("std", x);
  return std(flatten(x), 0);
}

Tensor prod(const Tensor& x, int axis, bool keep) {
  if (is_bf16(x)) return downcast(prod(upcast(x), axis, keep));
  const int a = checks::axis("prod", x, axis);
  Tensor rest = x;
  while (rest.shape()[a] > 1) {
    const std::int64_t count = rest.shape()[a], half = count / 2;
    const Tensor pairs = narrow(rest, a, 0, half) * narrow(rest, a, half, half);
    rest = count % 2 == 0 ? pairs : concat({pairs, narrow(rest, a, count - 1, 1)}, a);
  }
  if (rest.shape()[a] == 0) return sum(x, a, keep) + 1.0;  // of no elements, and on the tape
  return reshape(rest, reduced_shape(x.shape(), a, keep));
}
Tensor prod(const Tensor& x) {
  checks::defined("prod", x);
  return prod(flatten(x), 0);
}

Tensor detail::softmax_over(const Tensor& x, int axis) {
  const int a = checks::axis("softmax", x, axis);
  return a == x.rank() - 1 ? softmax(x) : transpose(softmax(transpose(x, a, -1)), a, -1);
}

Tensor log_softmax(const Tensor& x, int axis) {
  const int a = checks::axis("log_softmax", x, axis);
  return a == x.rank() - 1 ? log_softmax(x) : transpose(log_softmax(transpose(x, a, -1)), a, -1);
}

}  // namespace eddy
