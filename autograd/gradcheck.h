// Checks a gradient against finite differences, in f64.
//
// For a random cotangent c, backward(fn(x), c) gives the gradient of the scalar f(x) = sum(c * fn(x)). Each
// element of it is compared with extrapolated central differences:
//
//   D(h)    = (f(x + h) - f(x - h)) / (2 h)
//   numeric = (4 D(h) - D(2h)) / 3               error O(h^4)
//
// The cotangent is random because the sum of a softmax has gradient 0, which would hide a wrong backward.
// Source: Richardson, "The approximate arithmetical solution by finite differences" (1911), for the
// extrapolation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace eddy {

// How a gradient is checked.
struct GradcheckOptions {
  // h = step * max(1, sqrt|x|). At 1e-4, for a function of size 1, the truncation error (h^4 = 1e-16) and the
  // rounding error (2e-16 / h = 2e-12) are both far below the tolerance. Near a kink, where D(h) and D(2h)
  // disagree, smaller steps are tried.
  double step = 1e-4;
  double tolerance = 1e-7;  // the largest error that passes
  // Errors are relative to the larger of the two values, or to this if both are smaller.
  double floor = 1e-2;
  std::uint64_t seed = 1;  // of the cotangent
};

// What a check found.
struct GradcheckResult {
  bool ok = true;  // whether all errors are within the tolerance
  // The element with the largest error; input is -1 when nothing was compared.
  int input = -1;
  std::vector<std::int64_t> index;
  double analytic = 0;
  double numeric = 0;
  double error = 0;  // relative, less the rounding noise of the differences
  double tolerance = 0;
  std::int64_t compared = 0;  // elements

  // One line for a test's message.
  std::string describe() const;
};

// Compares the gradients of all f64 inputs, element by element. Integer and undefined inputs are passed on to
// fn. fn gets copies with the same strides; the given tensors do not change. Results that are not floating
// are ignored. `ok` is false if an error is NaN.
// errors: none for a wrong gradient: `ok` tells. DtypeError for f32 or bf16 inputs or results; ValueError when fn gives
// another number of elements when called again; DeviceError unless on the CPU.
[[nodiscard]] GradcheckResult gradcheck(
    const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& fn,
    const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace eddy
