// Samples and references of the ops in matmul.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// Plain loops over the last two axes; b may be shared by all leading entries.
Tensors naive_matmul(const Tensor& a, const Tensor& b) {
  const std::int64_t m = a.dim(-2), k = a.dim(-1), n = b.dim(-1);
  const std::vector<double> va = a.to_vector<double>(), vb = b.to_vector<double>();
  const std::int64_t batch = m * k == 0 ? 0 : a.elements() / (m * k);
  const Shape shape = a.shape().with(-1, n);
  std::vector<double> c(static_cast<std::size_t>(shape.elements()), 0.0);
  for (std::int64_t s = 0; s < batch; ++s)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t t = 0; t < k; ++t)
          c[static_cast<std::size_t>((s * m + i) * n + j)] +=
              va[static_cast<std::size_t>((s * m + i) * k + t)] *
              vb[static_cast<std::size_t>(((b.rank() == 2 ? 0 : s * k) + t) * n + j)];
  return {Tensor::from(c, shape)};
}

// x times the transpose of each of the weights that follow it.
Tensors naive_products(const Tensors& x) {
  Tensors results;
  for (std::size_t i = 1; i < x.size(); ++i)
    results.push_back(naive_matmul(x[0], raw::copy(raw::transpose(x[i], 0, 1)))[0]);
  return results;
}

}  // namespace

std::vector<OpSpec> matmul_specs() {
  OpSpec product{"matmul", "A B"};
  product.run = [](const Tensors& x) { return matmul(x[0], x[1]); };
  product.reference = [](const Tensors& x) { return naive_matmul(x[0], x[1]); };
  const auto a = [](const Shape& shape) { return sample_normal(shape, "a"); };
  const auto b = [](const Shape& shape) { return sample_normal(shape, "b"); };
  product.samples = {
      {"size_0_rows", {a({0, 3}), b({3, 4})}},
      {"size_0_inner", {a({2, 0}), b({0, 4})}},
      {"size_1", {a({1, 1}), b({1, 1})}},
      {"odd_tail", {a({5, 7}), b({7, 3})}},
      {"batched", {a({2, 3, 4, 5}), b({2, 3, 5, 6})}},
      {"shared_right", {a({2, 3, 5}), b({5, 4})}},
      {"transposed", {strided_copy(a({4, 5})), strided_copy(b({5, 6}))}},
      {"heads", {raw::transpose(a({2, 3, 4, 5}), 1, 2), raw::transpose(b({2, 5, 4, 6}), 1, 2)}},
      {"large", {sample_normal({4, 9}, "la", 1e3), sample_normal({9, 4}, "lb", 1e3)}}};
  product.roundings = 16;
  product.bench = [] { return Tensors{sample_normal({1024, 1024}, "a"), sample_normal({1024, 1024}, "b")}; };

  OpSpec affine{"linear", "x W^T + b"};
  affine.run = [](const Tensors& x) { return linear(x[0], x[1], optional_input(x, 2)); };
  affine.reference = [](const Tensors& x) {
    const Tensor y = naive_matmul(x[0], raw::copy(raw::transpose(x[1], 0, 1)))[0];
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
  with_relu.run = [](const Tensors& x) { return linear_relu(x[0], x[1], optional_input(x, 2)); };
  with_relu.reference = [affine_reference = affine.reference](const Tensors& x) {
    return relu(affine_reference(x)[0]);
  };

  OpSpec sum = affine;
  sum.name = "add_linear";
  sum.formula = "r + x W^T + b";
  sum.run = [](const Tensors& x) { return add_linear(x[0], x[1], x[2], optional_input(x, 3)); };
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

  // Weights in separate tensors; those of "stacked" are slices of one tensor.
  OpSpec joint = affine;
  joint.name = "joint_linear";
  joint.formula = "x W_1^T, x W_2^T, .. side by side";
  joint.run = [](const Tensors& x) { return joint_linear(x[0], {x.begin() + 1, x.end()}); };
  joint.reference = [](const Tensors& x) { return concat(naive_products(x), -1); };
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
  parts.name = "joint_linear_parts";
  parts.formula = "x W_1^T, x W_2^T, .. each of its own";
  parts.run = [](const Tensors& x) { return joint_linear_parts(x[0], {x.begin() + 1, x.end()}); };
  parts.reference = naive_products;
  return {product, affine, with_relu, sum, joint, parts};
}

}  // namespace eddy
