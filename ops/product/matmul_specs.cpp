// Samples and reference of the op in matmul.h.
#include "ops/core/op_spec.h"
#include "ops/product/matmul.h"

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
  return {product};
}

}  // namespace eddy
