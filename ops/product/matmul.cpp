// matmul, linear and linear_relu: every case is one call of the gemm slot.
#include "ops/product/matmul.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/core/gradient_buffer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/affine.h"
#include "ops/product/fused_product.h"
#include "ops/product/product.h"
#include "ops/product/repeated_products.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {
namespace {

// How a matrix (the last two axes of a tensor) lies in memory for gemm.
struct Layout {
  bool transposed = false;
  std::int64_t row_stride = 0;
  bool usable = false;
};

Layout layout_of(const Tensor& x) {
  const std::int64_t rows = x.dim(-2), columns = x.dim(-1);
  const std::int64_t row_stride = x.strides()[x.rank() - 2], column_stride = x.strides()[x.rank() - 1];
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1))
    return {false, rows == 1 ? std::max<std::int64_t>(columns, 1) : row_stride, true};
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1))
    return {true, columns == 1 ? std::max<std::int64_t>(rows, 1) : column_stride, true};
  return {};
}

// The leading axes as up to two batch levels; false when their strides do not allow it.
bool batch_levels(const Tensor& x, std::int64_t* inner, std::int64_t* outer) {
  const int leading = x.rank() - 2;
  *inner = *outer = 0;
  if (leading >= 1) *inner = x.strides()[leading - 1];
  if (leading == 2) *outer = x.strides()[0];
  return leading <= 2;
}

// x, or a copy that gemm can read.
Tensor readable(const Tensor& x) {
  std::int64_t inner, outer;
  return layout_of(x).usable && batch_levels(x, &inner, &outer) ? x : raw::copy(x);
}

constexpr int kRelu = pointwise::IndexOf<pointwise::Relu, pointwise::UnaryOps>::value;

// bf16 products on a device that has none: widens the operands, and rounds a bf16 result once.
void multiply_widened(const Tensor& c, const Tensor& a, const Tensor& b, double beta, const Tensor& bias,
                      bool relu) {
  const auto widened = [](const Tensor& x) { return raw::cast(x, Dtype::f32); };
  const Tensor shift = bias.defined() ? widened(bias) : bias;
  if (c.dtype() == Dtype::f32) return multiply_into(c, widened(a), widened(b), beta, shift, relu);
  const Tensor sum = beta == 0 ? Tensor::empty(c.shape(), Dtype::f32) : widened(c);
  multiply_into(sum, widened(a), widened(b), beta, shift, relu);
  raw::cast_into(c, sum);
}

}  // namespace

void multiply_into(const Tensor& c, const Tensor& a_any, const Tensor& b_any, double beta, const Tensor& bias,
                   bool relu, PackedWeights* repeated) {
  if (widens(a_any)) return multiply_widened(c, a_any, b_any, beta, bias, relu);
  Tensor a = readable(a_any), b = readable(b_any);
  const int leading = c.rank() - 2;
  Tensor target = c;
  if (leading > 2) {  // fold all leading axes into one
    const auto folded = [](const Tensor& x) {
      return raw::reshape(
          raw::contiguous(x),
          {x.elements() / std::max<std::int64_t>(1, x.dim(-1) * x.dim(-2)), x.dim(-2), x.dim(-1)});
    };
    a = folded(a);
    if (b.rank() > 2) b = folded(b);
    target = folded(c);  // contiguous: c is fresh or a gradient buffer
  }
  const Layout la = layout_of(a), lb = layout_of(b);
  GemmArgs g{};
  g.dtype = a.dtype();
  g.c_f32 = c.dtype() == Dtype::f32;
  g.m = c.dim(-2);
  g.n = c.dim(-1);
  g.k = a.dim(-1);
  g.transpose_a = la.transposed;
  g.lda = la.row_stride;
  g.transpose_b = lb.transposed;
  g.ldb = lb.row_stride;
  g.ldc = std::max<std::int64_t>(
      g.n, target.rank() >= 2 && target.dim(-2) > 1 ? target.strides()[target.rank() - 2] : g.n);
  g.a = a.raw_data();
  g.b = b.raw_data();
  g.c = target.raw_data();
  g.beta = beta;
  batch_levels(a, &g.stride_a, &g.outer_a);
  if (b.rank() > 2) batch_levels(b, &g.stride_b, &g.outer_b);
  batch_levels(target, &g.stride_c, &g.outer_c);
  const int levels = target.rank() - 2;
  if (levels >= 1) g.batch = target.dim(levels - 1);
  if (levels == 2) g.outer = target.dim(0);
  if (c.elements() == 0) return;
  if (g.k == 0) {
    if (bias.defined())
      raw::copy_into(c, raw::expand(bias, c.shape()));
    else if (beta == 0)
      raw::fill(c, 0);
    if (relu)
      unary_forward_slot(c.device(), {kRelu, c.dtype(), c.elements(), c.raw_data(), nullptr, c.raw_data()});
    return;
  }
  const Tensor packed_bias = bias.defined() ? raw::contiguous(bias) : Tensor();
  if (bias.defined()) g.bias = packed_bias.raw_data();
  g.relu = relu;
  if (repeated != nullptr && levels == 0 && !g.transpose_a && b.raw_data() == b_any.raw_data())
    g.panels_b = repeated->panels_for(b, g.m);
  gemm_slot(c.device(), g);
}

Tensor flat_rows(const Tensor& x) {
  const std::int64_t width = x.dim(-1);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return raw::reshape(raw::contiguous(x), {rows, width});
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (!widens(a)) checks::floating("matmul", a);
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
    const Tensor dy = readable(v.dy());
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

void check_linear(const char* op, const Tensor& x, const Tensor& weight) {
  if (!widens(x)) checks::floating(op, x);
  checks::parameter(op, x, weight);
  if (x.rank() < 1 || weight.rank() != 2 || x.dim(-1) != weight.dim(1))
    fail<ShapeError>("{}: x {} and weight {} (x [..., in], weight [out, in])", op, to_string(x.shape()),
                     to_string(weight.shape()));
}

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

// Deferred weight gradients: products dy^T x over few rows each, as the steps of a recurrence produce them,
// are computed as one product, which reads and writes the gradient [out, in] once for all of them.
class RowProducts final : public DeferredGradient {
 public:
  // Whether these rows can be concatenated with the deferred ones.
  bool takes(const Tensor& dy) const { return dys_.empty() || dys_[0].dtype() == dy.dtype(); }
  void add(const Tensor& dy, const Tensor& x) {
    dys_.push_back(dy);
    xs_.push_back(x);
    rows_ += dy.dim(0);
  }
  std::int64_t rows() const { return rows_; }
  void add_to(const Tensor& dst, float beta) override {
    multiply_into(dst, raw::transpose(joined(dys_), 0, 1), joined(xs_), beta);
  }

 private:
  static Tensor joined(const std::vector<Tensor>& parts) {
    return parts.size() == 1 ? parts[0] : raw::concat(parts, 0);
  }

  std::vector<Tensor> dys_, xs_;
  std::int64_t rows_ = 0;
};

// Products of at most `few` rows are deferred, until `enough` rows have come together. Deferring copies dy
// and x, and saves reading and writing the gradient. Up to a fourth of the gradient's size the copies are
// cheaper; at twice its size the product hides the gradient's traffic. On a GPU a copy is a launch just as a
// product is: nothing is deferred.
struct RowLimits {
  std::int64_t few, enough;
};
RowLimits row_limits(const Tensor& dy, const Tensor& x) {
  const std::int64_t row = dy.dim(1) + x.dim(1), gradient = dy.dim(1) * x.dim(1);
  return {dy.device() == kCpu ? gradient / (4 * row) : 0, 2 * gradient / row};
}

// Passes on dy^T x, the gradient of input k, the weight of y = x W^T. Anomaly mode checks each node's own
// gradient, so nothing is deferred there.
void give_row_product(VjpContext& v, int k, const Tensor& dy, const Tensor& x) {
  const RowLimits limits = row_limits(dy, x);
  if (dy.dim(0) > limits.few || anomaly_mode())
    return v.sink.into(
        k, [&](const Tensor& dst, float beta) { multiply_into(dst, raw::transpose(dy, 0, 1), x, beta); });
  if (!v.sink.defer<RowProducts>(k).takes(dy)) v.sink.settle(k);
  auto& products = v.sink.defer<RowProducts>(k);
  products.add(dy, x);
  if (products.rows() >= limits.enough) v.sink.settle(k);
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
  give_weight_gradients(v, 1, rows, v.saved(0));
}

// dy where y is positive, else 0. Overwrites dy if nothing else uses it, so that no third tensor of this
// width is allocated beside y and dy.
Tensor relu_gradient(const Tensor& dy, const Tensor& y) {
  if (widens(dy))
    return raw::cast(relu_gradient(raw::cast(dy, Dtype::f32), raw::cast(y, Dtype::f32)), dy.dtype());
  const bool ours = dy.exclusive() || !dy.contiguous();
  const Tensor given = raw::contiguous(dy);
  const Tensor dz = ours ? given : Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  relu_backward(dz, given, y);
  return dz;
}

}  // namespace

void check_bias(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!bias.defined()) return;
  checks::parameter(op, x, bias);
  if (bias.shape() != Shape{weight.dim(0)})
    fail<ShapeError>("{}: bias {} for weight {} (bias [out])", op, to_string(bias.shape()),
                     to_string(weight.shape()));
}

void check_affine(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear(op, x, weight);
  check_bias(op, x, weight, bias);
}

AffineOperands affine_operands(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool rounds = x.dtype() == Dtype::bf16;
  return {flat_rows(x), rounds ? raw::to_bf16(weight) : weight,
          rounds && bias.defined() ? raw::to_bf16(bias) : bias};
}

void relu_backward(const Tensor& dz, const Tensor& dy, const Tensor& y) {
  if (dz.elements() > 0)
    unary_backward_slot(dz.device(),
                        {kRelu, dz.dtype(), dz.elements(), y.raw_data(), dy.raw_data(), dz.raw_data()});
}

void give_weight_gradients(VjpContext& v, int weight, const Tensor& dy, const Tensor& x) {
  const int bias = weight + 1;
  if (v.sink.needs(weight) && v.sink.needs(bias) && fuses_products(dy.device()) && dy.dim(0) > 0)
    return multiply_and_sum(gradient_buffer(v, weight), gradient_buffer(v, bias), dy, x);
  if (v.sink.needs(weight)) give_row_product(v, weight, dy, x);
  if (v.sink.needs(bias)) v.sink.into(bias, [&](const Tensor& dst, float beta) { sum_into(dst, dy, beta); });
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Affine made = affine("linear", x, weight, bias, false);
  return record("linear", {x, weight, bias}, made.y, {made.rows, made.weight},
                [repeated = made.repeated](VjpContext& v) { affine_gradients(v, v.dy(), repeated.get()); });
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
    const bool goes_on = x.contiguous() && x.buffer() == first.buffer() && x.dtype() == first.dtype() &&
                         x.offset() == first.offset() + rows * first.dim(1);
    if (!goes_on) return {};
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
