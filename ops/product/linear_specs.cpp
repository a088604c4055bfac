// Samples and references of the ops in linear.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// x times the transpose of each of the weights that follow it.
Tensors separate_products(const Tensors& x) {
  Tensors results;
  for (std::size_t i = 1; i < x.size(); ++i) results.push_back(matmul(x[0], raw::transpose(x[i], 0, 1)));
  return results;
}

}  // namespace

std::vector<OpSpec> linear_specs() {
  const auto a = [](const Shape& shape) { return sample_normal(shape, "a"); };
  const auto b = [](const Shape& shape) { return sample_normal(shape, "b"); };
  OpSpec affine{"linear", "x W^T + b"};
  affine.run = [](const Tensors& x) { return linear(x[0], x[1], optional_input(x, 2)); };
  affine.reference = [](const Tensors& x) {
    const Tensor y = matmul(x[0], raw::transpose(x[1], 0, 1));
    if (x.size() > 2) raw::add_into(y, raw::expand(x[2], y.shape()));
    return y;
  };
  affine.samples = {{"size_0", {a({0, 3}), b({4, 3}), a({4})}},
                    {"size_1", {a({1, 1}), b({1, 1}), a({1})}},
                    {"odd_tail", {a({5, 7}), b({3, 7}), a({3})}},
                    {"no_bias", {a({2, 3, 5}), b({4, 5})}},
                    {"strided", {strided_copy(a({6, 5})), strided_copy(b({4, 5})), a({4})}},
                    {"large", {sample_normal({4, 9}, "la", 1e3), sample_normal({5, 9}, "lb", 1e3)}}};
  affine.roundings = 16;
  affine.bench = [] { return Tensors{sample_normal({4096, 384}, "a"), sample_normal({1536, 384}, "b")}; };

  OpSpec with_relu = affine;
  with_relu.name = "linear_relu";
  with_relu.formula = "max(x W^T + b, 0)";
  with_relu.run = [](const Tensors& x) { return linear(x[0], x[1], optional_input(x, 2), {.relu = true}); };
  with_relu.reference = [affine_reference = affine.reference](const Tensors& x) {
    return relu(affine_reference(x)[0]);
  };

  OpSpec sum = affine;
  sum.name = "linear_residual";
  sum.formula = "r + x W^T + b";
  sum.run = [](const Tensors& x) { return linear(x[1], x[2], optional_input(x, 3), {.residual = x[0]}); };
  sum.reference = [affine_reference = affine.reference](const Tensors& x) {
    return x[0] + affine_reference({x.begin() + 1, x.end()})[0];
  };
  for (OpSample& sample : sum.samples) {
    const Shape shape = sample.inputs[0].shape().with(-1, sample.inputs[1].dim(0));
    sample.inputs.insert(sample.inputs.begin(), sample_normal(shape, "r"));
  }
  sum.bench = [bench = affine.bench] {
    Tensors inputs = bench();
    inputs.insert(inputs.begin(), sample_normal({4096, 1536}, "r"));
    return inputs;
  };

  OpSpec both = sum;
  both.name = "linear_relu_residual";
  both.formula = "r + max(x W^T + b, 0)";
  both.run = [](const Tensors& x) {
    return linear(x[1], x[2], optional_input(x, 3), {.relu = true, .residual = x[0]});
  };
  both.reference = [relu_reference = with_relu.reference](const Tensors& x) {
    return x[0] + relu_reference({x.begin() + 1, x.end()})[0];
  };

  // Weights in separate tensors; those of "stacked" are slices of one tensor.
  OpSpec joint = affine;
  joint.name = "linear_joint";
  joint.formula = "x W_1^T, x W_2^T, .. side by side";
  joint.run = [](const Tensors& x) { return linear(x[0], Tensors{x.begin() + 1, x.end()}); };
  joint.reference = [](const Tensors& x) { return concat(separate_products(x), -1); };
  const Tensor stack = b({9, 5});
  joint.samples = {
      {"size_0", {a({0, 3}), b({4, 3}), b({2, 3})}},
      {"size_1", {a({1, 1}), b({1, 1})}},
      {"odd_tail", {a({5, 7}), b({3, 7}), sample_normal({2, 7}, "c")}},
      {"rank_3", {a({2, 3, 5}), b({4, 5}), sample_normal({3, 5}, "c"), sample_normal({1, 5}, "d")}},
      {"strided", {strided_copy(a({6, 5})), strided_copy(b({4, 5})), b({2, 5})}},
      {"stacked", {a({6, 5}), raw::narrow(stack, 0, 0, 4), raw::narrow(stack, 0, 4, 5)}},
      {"large", {sample_normal({4, 9}, "la", 1e3), sample_normal({5, 9}, "lb", 1e3)}}};
  joint.bench = [] {
    return Tensors{sample_normal({4096, 384}, "a"), sample_normal({768, 384}, "b"),
                   sample_normal({768, 384}, "c")};
  };
  OpSpec parts = joint;
  parts.name = "linear_parts";
  parts.formula = "x W_1^T, x W_2^T, .. each of its own";
  parts.run = [](const Tensors& x) { return linear_parts(x[0], {x.begin() + 1, x.end()}); };
  parts.reference = separate_products;
  return {affine, with_relu, sum, both, joint, parts};
}

}  // namespace eddy
