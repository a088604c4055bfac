// Samples and references of the ops in unit_norm.h.
#include "ops/core/op_spec.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

namespace eddy {
namespace {

constexpr double kUnitNormEps = 1e-6;
constexpr AxisRange kPlain{1, 1};

Tensor reference_unit_norm(const Tensor& x) {
  return x / sqrt(sum(x * x, -1, true) + kUnitNormEps);
}

}  // namespace

std::vector<OpSpec> unit_norm_specs() {
  OpSpec spec{"unit_norm", "x (sum(x^2) + eps)^(-1/2), last axis"};
  spec.run = [](const Tensors& x) { return unit_norm(x[0], kUnitNormEps); };
  spec.reference = [](const Tensors& x) { return reference_unit_norm(x[0]); };
  const auto x = [](const Shape& shape, double scale = 1) { return sample_normal(shape, "x", scale); };
  // One element of the size of sqrt(eps): with a larger one dx is only what rounding leaves of dy - dy.
  const double near_eps = 1e-3;
  spec.samples = {{"size_0", {x({3, 0})}},
                  {"no_rows", {x({0, 5})}},
                  {"size_1", {x({2, 1}, near_eps)}},
                  {"odd_tail", {x({3, 37})}},
                  {"heads", {x({2, 3, 4, 8})}},
                  {"many_rows", {x({131, 48})}, false},
                  {"strided", {strided_copy(x({5, 7}))}},
                  {"part_of_last_axis", {raw::narrow(x({2, 3, 15}), 2, 5, 5)}},
                  {"zeros", {Tensor::zeros({2, 3}, Dtype::f64)}, false},
                  {"large", {x({3, 65}, 1e4)}, false}};
  spec.roundings = 32;
  spec.bench = [x] { return x({16384, 128}); };

  // The second head is plain.
  OpSpec heads = spec;
  heads.name = "unit_norm_heads";
  heads.formula = "the same, but for the heads that stay x";
  heads.run = [](const Tensors& inputs) { return unit_norm_heads(inputs[0], kUnitNormEps, kPlain); };
  heads.reference = [](const Tensors& inputs) {
    const Tensor y = reference_unit_norm(inputs[0]);
    raw::copy_into(raw::narrow(y, -2, kPlain.first, kPlain.count),
                   raw::narrow(inputs[0], -2, kPlain.first, kPlain.count));
    return y;
  };
  heads.samples = {{"size_0", {x({3, 4, 0})}},
                   {"no_rows", {x({0, 4, 5})}},
                   {"size_1", {x({2, 2, 1}, near_eps)}},
                   {"odd_tail", {x({3, 4, 37})}},
                   {"heads", {x({2, 3, 4, 8})}},
                   {"many_rows", {x({131, 4, 48})}, false},
                   {"strided", {strided_copy(x({5, 4, 7}))}},
                   {"part_of_heads", {raw::narrow(x({2, 3, 9, 5}), 2, 3, 4)}},
                   {"large", {x({3, 4, 65}, 1e4)}, false}};
  heads.bench = [x] { return x({4096, 4, 128}); };
  return {spec, heads};
}

}  // namespace eddy
