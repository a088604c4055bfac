// matmul, linear, linear_relu and joint_linear.
#include "ops/product/matmul.h"
#include "ops/product/affine.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/gradient_buffer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/fused_product.h"
#include "ops/product/product.h"
#include "ops/product/repeated_products.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (!must_upcast(a)) checks::floating("matmul", a);
  checks::same_kind("matmul", a, b);
  if (a.rank() < 2 || b.rank() < 2)
    fail<ShapeError>("matmul: {} and {} (both need at least two axes)", to_string(a.shape()),
                     to_string(b.shape()));
  if (a.dim(-1) != b.dim(-2))
    fail<ShapeError>("matmul: inner sizes differ: {} and {} ([..., m, k] by [..., k, n])",
                     to_string(a.shape()), to_string(b.shape()));
  const bool shared_b = b.rank() == 2 && a.rank() > 2;
  if (!shared_b) {
    bool equal = a.rank() == b.rank();
    for (int i = 0; equal && i + 2 < a.rank(); ++i) equal = a.shape()[i] == b.shape()[i];
    if (!equal)
      fail<ShapeError>("matmul: leading axes differ: {} and {} (equal, or a plain matrix on the right)",
                       to_string(a.shape()), to_string(b.shape()));
  }
  if (shared_b) {  // fold the batch into the rows: one large product beats many small ones
    const Shape shape = a.shape().with(-1, b.dim(-1));
    const Tensor rows = flat_rows(a);
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    multiply_into(raw::reshape(y, {rows.dim(0), b.dim(1)}), rows, b, 0);
    return record("matmul", {a, b}, y, {rows, b}, [shape_a = a.shape()](VjpContext& v) {
      const Tensor dy = flat_rows(v.dy());
      if (v.sink.needs(0))
        v.sink.into(0, [&](const Tensor& dst, float beta) {
          multiply_into(raw::reshape(dst, {dy.dim(0), shape_a.dim(-1)}), dy, raw::transpose(v.saved(1), 0, 1),
                        beta);
        });
      if (v.sink.needs(1))
        v.sink.into(1, [&](const Tensor& dst, float beta) {
          multiply_into(dst, raw::transpose(v.saved(0), 0, 1), dy, beta);
        });
    });
  }
  const Tensor y = Tensor::empty(a.shape().with(-1, b.dim(-1)), a.dtype(), a.device());
  multiply_into(y, a, b, 0);
  return record("matmul", {a, b}, y, {a, b}, [](VjpContext& v) {
    const Tensor dy = readable_by_gemm(v.dy());
    if (v.sink.needs(0))
      v.sink.into(0, [&](const Tensor& dst, float beta) {
        multiply_into(dst, dy, raw::transpose(v.saved(1), -1, -2), beta);
      });
    if (v.sink.needs(1))
      v.sink.into(1, [&](const Tensor& dst, float beta) {
        multiply_into(dst, raw::transpose(v.saved(0), -1, -2), dy, beta);
      });
  });
}

namespace {

// The result of a linear layer, and what its gradients read.
struct Affine {
  Tensor rows, weight, y;
  std::shared_ptr<PackedWeights> repeated;
};

Affine affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  check_affine(op, x, weight, bias);
  const Tensor y = Tensor::empty(x.shape().with(-1, weight.dim(0)), x.dtype(), x.device());
  const AffineOperands operands = affine_operands(x, weight, bias);
  const Tensor y_rows = raw::reshape(y, {operands.rows.dim(0), weight.dim(0)});
  const std::shared_ptr<PackedWeights>& repeated = RepeatedProducts::current();
  multiply_into(y_rows, operands.rows, raw::transpose(operands.weight, 0, 1), 0, operands.bias, relu,
                repeated.get());
  return {operands.rows, operands.weight, y, repeated};
}

// The gradients of z = x W^T + b; x and W are saved:
//
//   dx = dz W
//   dW = dz^T x
//   db = sum of dz over rows
void affine_gradients(VjpContext& v, const Tensor& dz, PackedWeights* repeated) {
  const Tensor rows = flat_rows(dz);
  if (v.sink.needs(0))
    v.sink.into(0, [&](const Tensor& dst, float beta) {
      multiply_into(raw::reshape(dst, {rows.dim(0), dst.dim(-1)}), rows, v.saved(1), beta, {}, false,
                    repeated);
    });
  give_weight_gradients(v, {{1, rows, v.saved(0)}});
}

// dy where y is positive, else 0. Overwrites dy if nothing else uses it, so that no third tensor of this
// width is allocated beside y and dy.
Tensor relu_gradient(const Tensor& dy, const Tensor& y) {
  if (must_upcast(dy))
    return raw::cast(relu_gradient(raw::cast(dy, Dtype::f32), raw::cast(y, Dtype::f32)), dy.dtype());
  const bool ours = dy.exclusive() || !dy.contiguous();
  const Tensor given = raw::contiguous(dy);
  const Tensor dz = ours ? given : Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  relu_backward(dz, given, y);
  return dz;
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Affine made = affine("linear", x, weight, bias, false);
  return record("linear", {x, weight, bias}, made.y, {made.rows, made.weight},
                [repeated = made.repeated](VjpContext& v) { affine_gradients(v, v.dy(), repeated.get()); });
}

Tensor add_linear(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  checks::defined("add_linear", residual, "residual");
  check_affine("add_linear", x, weight, bias);
  check_residual("add_linear", residual, x, weight);
  if (!fuses_products(x.device())) return residual + linear(x, weight, bias);
  const AffineOperands operands = affine_operands(x, weight, bias);
  const Tensor y = Tensor::empty(residual.shape(), x.dtype(), x.device());
  multiply_add(flat_rows(y), flat_rows(residual), operands.rows, operands.weight, operands.bias);
  return record("add_linear", {x, weight, bias, residual}, y, {operands.rows, operands.weight},
                [](VjpContext& v) {
                  if (v.sink.needs(3)) v.sink.give(3, v.dy());
                  affine_gradients(v, v.dy(), nullptr);
                });
}

Tensor linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Affine made = affine("linear_relu", x, weight, bias, true);
  return record("linear_relu", {x, weight, bias}, made.y, {made.rows, made.weight, made.y},
                [repeated = made.repeated](VjpContext& v) {
                  affine_gradients(v, relu_gradient(v.dy(), v.saved(2)), repeated.get());
                });
}

namespace {

// One view of all matrices, stacked; undefined unless each begins where the one before ends. Also undefined
// on the CPU, where a call costs nothing and an operand that fits a cache is worth more: with the two
// matrices of a gated MLP, 288 x 768 each, in one product of 256 rows, a step of a small Llama took 15 to 20
// % longer (2026-11-22, AVX-512, one thread).
Tensor stacked(const std::vector<Tensor>& matrices) {
  const Tensor& first = matrices[0];
  if (first.device() == kCpu) return {};
  std::int64_t rows = 0;
  for (const Tensor& x : matrices) {
    const bool adjoins = x.contiguous() && x.buffer() == first.buffer() && x.dtype() == first.dtype() &&
                         x.offset() == first.offset() + rows * first.dim(1);
    if (!adjoins) return {};
    rows += x.dim(0);
  }
  const std::int64_t strides[] = {first.dim(1), 1};
  return Tensor::over(first.buffer(), first.offset(), {rows, first.dim(1)}, strides, first.dtype());
}

// Up to this many elements, the parts of dy are concatenated for one product. Reading and writing 2^20 f32
// numbers is 8 MiB, 3 us of an H100's memory and so about a launch; an estimate, not measured on a GPU.
constexpr std::int64_t kMostGathered = 1 << 20;

// The parts of dy side by side, as rows; undefined where separate products are better.
Tensor gathered(const std::vector<Tensor>& parts, const std::vector<Tensor>& factors) {
  if (!stacked(factors).defined()) return {};
  std::int64_t elements = 0;
  for (const Tensor& part : parts) {
    if (!part.defined()) return {};
    elements += part.elements();
  }
  return elements > kMostGathered ? Tensor() : flat_rows(raw::concat(parts, -1));
}

// The gradients dx = dy W and dW = dy^T x, as in linear: of the stacked weights at once, or part by part,
// where dx is the sum over parts. Inputs and saved tensors: x and the weights. Results: one for all weights,
// or one for each.
struct JointLinearVjp {
  std::size_t weights;
  bool in_parts;

  void operator()(VjpContext& v) const {
    std::vector<Tensor> factors, dys(weights);
    for (std::size_t i = 0; i < weights; ++i) {
      factors.push_back(v.saved(static_cast<int>(i) + 1));
      if (in_parts) dys[i] = v.dy(static_cast<int>(i));
    }
    // dy of the stack, and dys of the parts, as rows.
    const Tensor dy = in_parts ? gathered(dys, factors) : flat_rows(v.dy());
    std::int64_t first = 0;
    for (std::size_t i = 0; i < weights; ++i) {
      const std::int64_t count = factors[i].dim(0);
      if (dy.defined())
        dys[i] = raw::narrow(dy, 1, first, count);
      else if (dys[i].defined())
        dys[i] = flat_rows(dys[i]);
      first += count;
    }

    if (v.sink.needs(0))
      v.sink.into(0, [&](const Tensor& dst, float beta) {
        const Tensor rows = flat_rows(dst);
        const Tensor all = dy.defined() ? stacked(factors) : Tensor();
        if (all.defined()) return multiply_into(rows, dy, all, beta);
        for (std::size_t i = 0; i < weights; ++i) {
          if (!dys[i].defined()) continue;
          multiply_into(rows, dys[i], factors[i], beta);
          beta = 1;
        }
      });
    std::vector<GradientBuffer> gradients;
    std::vector<Tensor> buffers;
    for (std::size_t i = 0; i < weights; ++i) {
      gradients.push_back(dys[i].defined() ? gradient_buffer(v, static_cast<int>(i) + 1) : GradientBuffer());
      const GradientBuffer& last = gradients.back();
      if (last.tensor.defined() && last.beta == gradients[0].beta) buffers.push_back(last.tensor);
    }
    if (const Tensor all = dy.defined() && buffers.size() == weights ? stacked(buffers) : Tensor();
        all.defined())
      return multiply_into(all, raw::transpose(dy, 0, 1), v.saved(0), gradients[0].beta);
    for (std::size_t i = 0; i < weights; ++i)
      if (gradients[i].tensor.defined())
        multiply_into(gradients[i].tensor, raw::transpose(dys[i], 0, 1), v.saved(0), gradients[i].beta);
  }
};

// The products side by side, and the inputs and saved tensors of the node.
struct JointProducts {
  Tensor y;
  std::vector<Tensor> inputs, saved;
};

JointProducts joint_products(const char* op, const Tensor& x, const std::vector<Tensor>& weights) {
  if (weights.empty()) fail<ValueError>("{}: no weights (at least one)", op);
  std::int64_t width = 0;
  for (const Tensor& weight : weights) {
    check_linear(op, x, weight);
    width += weight.dim(0);
  }
  const Tensor rows = flat_rows(x);
  JointProducts products{Tensor::empty(x.shape().with(-1, width), x.dtype(), x.device()), {x}, {rows}};
  std::vector<Tensor> factors;
  for (const Tensor& weight : weights) {
    factors.push_back(x.dtype() == Dtype::bf16 ? raw::to_bf16(weight) : weight);
    products.inputs.push_back(weight);
    products.saved.push_back(factors.back());
  }
  const Tensor y_rows = flat_rows(products.y);
  if (const Tensor all = stacked(factors); all.defined()) {
    multiply_into(y_rows, rows, raw::transpose(all, 0, 1), 0);
    return products;
  }
  std::int64_t first = 0;
  for (const Tensor& factor : factors) {
    multiply_into(raw::narrow(y_rows, 1, first, factor.dim(0)), rows, raw::transpose(factor, 0, 1), 0);
    first += factor.dim(0);
  }
  return products;
}

}  // namespace

Tensor joint_linear(const Tensor& x, const std::vector<Tensor>& weights) {
  const JointProducts products = joint_products("joint_linear", x, weights);
  record_many("joint_linear", products.inputs, {products.y}, products.saved,
              JointLinearVjp{weights.size(), false});
  return products.y;
}

std::vector<Tensor> joint_linear_parts(const Tensor& x, const std::vector<Tensor>& weights) {
  // On the CPU, slices with a larger row stride cost 2 % of a step of a small Llama.
  if (!weights.empty() && x.defined() && x.device() == kCpu) {
    std::vector<Tensor> products;
    for (const Tensor& weight : weights) products.push_back(linear(x, weight));
    return products;
  }
  const JointProducts products = joint_products("joint_linear_parts", x, weights);
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (const Tensor& weight : weights) {
    parts.push_back(raw::narrow(products.y, -1, first, weight.dim(0)));
    first += weight.dim(0);
  }
  record_many("joint_linear_parts", products.inputs, parts, products.saved,
              JointLinearVjp{weights.size(), true});
  return parts;
}

}  // namespace eddy
