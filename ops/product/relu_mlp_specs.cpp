// Samples, reference and cost of the op in relu_mlp.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/product/relu_mlp.h"

namespace eddy {
namespace {

// Inputs x, up, down and, if there are, up_bias and down_bias.
Tensor run(const Tensors& x) {
  return relu_mlp(x[0], x[1], optional_input(x, 3), x[2], optional_input(x, 4));
}

Tensor reference(const Tensors& x) {
  return linear(relu(linear(x[0], x[1], optional_input(x, 3))), x[2], optional_input(x, 4));
}

Tensors sample(const Shape& shape, std::int64_t mlp, std::int64_t out, bool biased, double scale = 1) {
  Tensors inputs{sample_normal(shape, "x", scale), sample_normal({mlp, shape.dim(-1)}, "up"),
                 sample_normal({out, mlp}, "down")};
  if (!biased) return inputs;
  inputs.push_back(sample_normal({mlp}, "up bias"));
  inputs.push_back(sample_normal({out}, "down bias"));
  return inputs;
}

}  // namespace

std::vector<OpSpec> relu_mlp_specs() {
  OpSpec mlp{"relu_mlp", "max(x Wu^T + bu, 0) Wd^T + bd"};
  mlp.run = run;
  mlp.reference = reference;
  const Tensors odd = sample({5, 7}, 9, 3, false);
  mlp.samples = {{"size_0", sample({0, 3}, 4, 2, true)},     {"size_1", sample({1, 1}, 1, 1, true)},
                 {"odd_tail", sample({5, 7}, 9, 3, true)},   {"no_bias", sample({2, 3, 5}, 6, 4, false)},
                 {"wide", sample({3, 4}, 131, 5, true)},     {"strided", strided_copies(odd)},
                 {"large", sample({4, 9}, 5, 6, false, 1e3)}};
  mlp.roundings = 32;
  mlp.bench = [] { return sample({4096, 384}, 1536, 384, true); };

  const auto with_residual = [](Tensors inputs) {
    inputs.insert(inputs.begin(), sample_normal(inputs[0].shape().with(-1, inputs[2].dim(0)), "r"));
    return inputs;
  };
  OpSpec sum = mlp;
  sum.name = "add_relu_mlp";
  sum.formula = "r + max(x Wu^T + bu, 0) Wd^T + bd";
  sum.run = [](const Tensors& x) {
    return add_relu_mlp(x[0], x[1], x[2], optional_input(x, 4), x[3], optional_input(x, 5));
  };
  sum.reference = [](const Tensors& x) { return x[0] + reference({x.begin() + 1, x.end()}); };
  for (OpSample& one : sum.samples) one.inputs = with_residual(one.inputs);
  sum.bench = [=] { return with_residual(sample({4096, 384}, 1536, 384, true)); };
  return {mlp, sum};
}

}  // namespace eddy
