// Linear layers and their gradients:
//
//   z = x W^T + b        y = z, max(z, 0), or a residual stream + z
//
//   dz = dy              with ReLU where y is positive, else 0
//   dx = dz W
//   dW = dz^T x
//   db = sum of dz over rows
#include "ops/product/linear.h"

#include <memory>
#include <utility>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/core/gradient_buffer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/gemm.h"
#include "ops/product/packed_weights.h"
#include "ops/product/product.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {

using namespace detail;

namespace {

void check_linear(const char* op, const Tensor& x, const Tensor& weight) {
  if (!must_upcast(x)) checks::floating(op, x);
  checks::parameter(op, x, weight);
  if (x.rank() < 1 || weight.rank() != 2 || x.dim(-1) != weight.dim(1))
    fail<ShapeError>("{}: x {} and weight {} (x [..., in], weight [out, in])", op, to_string(x.shape()),
                     to_string(weight.shape()));
}

void check_bias(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!bias.defined()) return;
  checks::parameter(op, x, bias);
  if (bias.shape() != Shape{weight.dim(0)})
    fail<ShapeError>("{}: bias {} for weight {} (bias [out])", op, to_string(bias.shape()),
                     to_string(weight.shape()));
}

void check_residual(const char* op, const Tensor& residual, const Tensor& x, const Tensor& weight) {
  checks::same_kind(op, x, residual);
  if (const Shape shape = x.shape().with(-1, weight.dim(0)); residual.shape() != shape)
    fail<ShapeError>("{}: a residual {} for a result {} (equal shapes)", op, to_string(residual.shape()),
                     to_string(shape));
}

// Deferred weight gradients: products dy^T x over few rows each, as the steps of a recurrence produce them,
// are computed as one product, which reads and writes the gradient [out, in] once for all of them.
class RowProducts final : public DeferredGradient {
 public:
  // Whether these rows can be concatenated with the deferred ones.
  bool takes(const Tensor& dy) const { return dys_.empty() || dys_[0].dtype() == dy.dtype(); }
  void add(const Tensor& dy, const Tensor& x, MatmulPrecision precision) {
    precision_ = precision;
    dys_.push_back(dy);
    xs_.push_back(x);
    rows_ += dy.dim(0);
  }
  std::int64_t rows() const { return rows_; }
  void add_to(const Tensor& dst, float beta) override {
    multiply_into(dst, raw::transpose(joined(dys_), 0, 1), joined(xs_), beta, {.precision = precision_});
  }

 private:
  static Tensor joined(const std::vector<Tensor>& parts) {
    return parts.size() == 1 ? parts[0] : raw::concat(parts, 0);
  }

  std::vector<Tensor> dys_, xs_;
  std::int64_t rows_ = 0;
  MatmulPrecision precision_ = MatmulPrecision::f32;
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
  return {uses_cpu_path(dy.device()) ? gradient / (4 * row) : -1, 2 * gradient / row};
}

// Passes on dy^T x, the gradient of input k, the weight of y = x W^T, in the weight's precision. Anomaly mode checks
// each node's own gradient, so nothing is deferred there.
void accumulate_row_product(VjpContext& v, int k, const Tensor& dy, const Tensor& x,
                            MatmulPrecision precision) {
  const RowLimits limits = row_limits(dy, x);
  if (dy.dim(0) > limits.few || anomaly_mode())
    return v.sink.into(k, [&](const Tensor& dst, float beta) {
      multiply_into(dst, raw::transpose(dy, 0, 1), x, beta, {.precision = precision});
    });
  if (!v.sink.defer<RowProducts>(k).takes(dy)) v.sink.flush(k);
  auto& products = v.sink.defer<RowProducts>(k);
  products.add(dy, x, precision);
  if (products.rows() >= limits.enough) v.sink.flush(k);
}

constexpr int kGelu = pointwise::IndexOf<pointwise::Gelu, pointwise::UnaryOps>::value;

// What an activation makes of a gradient: dz = dy times its derivative at `saved`, the y of ReLU or what GELU read.
// Undefined without one, and where dz is there already.
struct Activated {
  Tensor dy, saved;
  bool gelu = false;
};

void differentiate(const Tensor& dz, const Activated& from) {
  if (from.saved.defined() && dz.elements() > 0)
    unary_backward_slot(dz.device(), {from.gelu ? kGelu : pointwise::kReluIndex, dz.dtype(), dz.elements(),
                                      from.saved.raw_data(), from.dy.raw_data(), dz.raw_data()});
}

// Passes on the sum of dz over rows, for the bias, input 2, and first writes dz if an activation is still to be
// differentiated. On a GPU blocks of rows are summed first, as every long sum is, by the kernel that does that, or by
// the one that wrote dy, where that is dz; the sums of the blocks may be deferred.
void accumulate_bias_gradient(VjpContext& v, const Tensor& dz, const Activated& from) {
  if (!v.sink.needs(2)) return differentiate(dz, from);
  if (const Tensor& sums = v.column_sums(); sums.defined()) return add_given_sums(v, 2, sums);
  const std::int64_t rows = dz.dim(0);
  if (uses_cpu_path(dz.device()) || rows <= kSummedRows || !dz.contiguous()) {
    differentiate(dz, from);
    return v.sink.into(2, [&](const Tensor& dst, float beta) { sum_into(dst, dz, beta); });
  }
  const PartialSums sums = partial_sums_of(v, 2, summed_blocks(rows), dz.dim(1), Dtype::f32, dz.device());
  if (const auto& [dst, beta] = sums.to; dst.defined() && dst.dtype() != Dtype::f32) {
    differentiate(dz, from);
    return sum_into(dst, dz, beta);
  }
  sum_row_blocks({from.saved.defined() ? from.dy : dz, sums.rows, from.saved, dz, from.gelu});
  add_partial_sums({sums});
}

// The arguments of a product with GELU in its kernel, but for what it writes.
GeluProductArgs gelu_product_of(const Tensor& left, const Tensor& weight, std::int64_t columns) {
  return {left.dtype(),    left.dim(0),       columns,           left.dim(1),
          left.raw_data(), left.strides()[0], weight.raw_data(), weight.strides()[0]};
}
// Whether there is such a kernel for rows [rows, depth] and a weight with this many columns of the product.
bool fuses_gelu(const Tensor& left, const Tensor& weight, std::int64_t columns) {
  if (left.dtype() != Dtype::bf16 || weight.dtype() != Dtype::bf16 || uses_cpu_path(left.device()) ||
      !left.contiguous() || weight.strides()[1] != 1)
    return false;
  bool fits = false;
  const GeluProductArgs product = gelu_product_of(left, weight, columns);
  gelu_product_supports_slot(left.device(), {&product, &fits});
  return fits;
}

// dy W, the gradient of what a linear layer reads, left to the node that made it: that of a linear layer with GELU,
// whose kernel multiplies by the derivative too.
class InputProduct final : public DeferredGradient {
 public:
  Tensor dy, weight;

  void add_to(const Tensor& dst, float beta) override {
    multiply_into(raw::reshape(dst, {dy.dim(0), dst.dim(-1)}), dy, weight, beta);
  }
};

// Passes on the gradient of x. Anomaly mode checks each node's own gradient, so nothing is deferred there.
void accumulate_input_gradient(VjpContext& v, const Tensor& dz, PackedWeights* loop_weights) {
  if (!v.sink.needs(0)) return;
  const Tensor& weight = v.saved(1);
  if (!anomaly_mode() && v.sink.is_taken_deferred(0) && fuses_gelu(dz, weight, weight.dim(1))) {
    auto& product = v.sink.defer<InputProduct>(0);
    product.dy = dz;
    product.weight = weight;
    return;
  }
  v.sink.into(0, [&](const Tensor& dst, float beta) {
    multiply_into(raw::reshape(dst, {dz.dim(0), dst.dim(-1)}), dz, weight, beta,
                  {.loop_weights = loop_weights});
  });
}

// Passes on all gradients of a node with the inputs x, weight and bias and the saved rows of x and weight; without that
// of the bias, if that is done.
void accumulate_product_gradients(VjpContext& v, const Tensor& dz, PackedWeights* loop_weights) {
  accumulate_input_gradient(v, dz, loop_weights);
  if (v.sink.needs(1)) accumulate_row_product(v, 1, dz, v.saved(0), matmul_precision(v.saved(1)));
}
void accumulate_gradients(VjpContext& v, const Tensor& dz, const Activated& from,
                          PackedWeights* loop_weights) {
  accumulate_bias_gradient(v, dz, from);
  accumulate_product_gradients(v, dz, loop_weights);
}

// The same with an activation. Overwrites dy if nothing else uses it, so that no third tensor of this width is
// allocated beside `saved` and dy.
void accumulate_gradients_through(VjpContext& v, const Tensor& saved, bool gelu,
                                  PackedWeights* loop_weights) {
  const bool ours = v.dy().exclusive() || !v.dy().contiguous();
  const Tensor given = flat_rows(v.dy());
  if (must_upcast(given)) {
    const Tensor dz = raw::cast(given, Dtype::f32);
    differentiate(dz, {dz, raw::cast(saved, Dtype::f32), gelu});
    return accumulate_gradients(v, raw::cast(dz, given.dtype()), {}, loop_weights);
  }
  const Tensor dz = ours ? given : Tensor::empty(given.shape(), given.dtype(), given.device());
  accumulate_gradients(v, dz, {given, saved, gelu}, loop_weights);
}

// x as rows, W and b, as the product reads them: with x in bf16, parameters in f32 are rounded to bf16. Their
// gradients are taken at the rounded values and are not rounded themselves.
struct Operands {
  Tensor rows, weight, bias;
};
Operands operands_of(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_linear("linear", x, weight);
  check_bias("linear", x, weight, bias);
  const bool rounds = x.dtype() == Dtype::bf16;
  return {flat_rows(x), rounds ? raw::to_bf16(weight) : weight,
          rounds && bias.defined() ? raw::to_bf16(bias) : bias};
}

// The gradients of x W^T + b, of that with ReLU, or added to a residual stream, which is input 3.
struct LinearVjp {
  bool relu, has_residual, sums_dy;  // sums_dy: for a bias in f32
  std::shared_ptr<PackedWeights> loop_weights;

  bool wants_column_sums() const { return sums_dy; }
  void operator()(VjpContext& v) const {
    if (has_residual && v.sink.needs(3)) v.sink.accumulate(3, v.dy());
    if (relu) return accumulate_gradients_through(v, v.saved(2), false, loop_weights.get());
    accumulate_gradients(v, flat_rows(v.dy()), {}, loop_weights.get());
  }
};
// Whether the bias gets a gradient in f32.
bool has_f32_gradient(const Tensor& bias) {
  return bias.defined() && bias.dtype() == Dtype::f32 && requires_grad(bias);
}

// residual + x W^T + b by one product.
Tensor added_in_product(const Tensor& residual, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Operands operands = operands_of(x, weight, bias);
  const Tensor y = Tensor::empty(residual.shape(), x.dtype(), x.device());
  multiply_add(flat_rows(y), flat_rows(residual), operands.rows, operands.weight, operands.bias);
  return record("linear", {x, weight, bias, residual}, y, {operands.rows, operands.weight},
                LinearVjp{false, true, has_f32_gradient(bias), nullptr});
}

// The gradients of gelu(z), z = x W^T + b, which is saved; where dy is the product of the layer above, by its kernel.
struct GeluVjp {
  static constexpr bool kTakesDeferred = true;

  void operator()(VjpContext& v) const {
    const Tensor& z = v.saved(2);
    const std::unique_ptr<InputProduct> product = v.take_deferred<InputProduct>();
    if (product == nullptr) return accumulate_gradients_through(v, z, true, nullptr);
    const Tensor dz = Tensor::empty(z.shape(), z.dtype(), z.device());
    const PartialSums sums = partial_sums_of(v, 2, summed_blocks(z.dim(0)), z.dim(1), Dtype::f32, z.device());
    const bool in_f32 = !sums.to.tensor.defined() || sums.to.tensor.dtype() == Dtype::f32;
    GeluProductArgs args = gelu_product_of(product->dy, product->weight, z.dim(1));
    args.z = z.raw_data();
    args.result = dz.raw_data();
    if (in_f32 && sums.rows.defined()) args.sums = sums.rows.mutable_data<float>();
    gelu_product_backward_slot(z.device(), args);
    if (in_f32)
      add_partial_sums({sums});
    else
      sum_into(sums.to.tensor, dz, sums.to.beta);
    accumulate_product_gradients(v, dz, nullptr);
  }
};

// gelu(x W^T + b) in bf16 on a GPU. The kernel of both writes z only where there will be gradients.
Tensor linear_with_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Operands operands = operands_of(x, weight, bias);
  const std::int64_t rows = operands.rows.dim(0), columns = weight.dim(0);
  const Tensor act = Tensor::empty(x.shape().with(-1, columns), x.dtype(), x.device());
  const auto make_z = [&] { return Tensor::empty({rows, columns}, x.dtype(), x.device()); };
  Tensor z;
  if (fuses_gelu(operands.rows, operands.weight, columns)) {
    const auto is_tracked = [](const Tensor& input) { return input.defined() && requires_grad(input); };
    if (grad_enabled() && (is_tracked(x) || is_tracked(weight) || is_tracked(bias))) z = make_z();
    Tensor packed_bias = operands.bias.defined() ? raw::contiguous(operands.bias) : Tensor();
    GeluProductArgs args = gelu_product_of(operands.rows, operands.weight, columns);
    if (packed_bias.defined()) {
      if (reinterpret_cast<std::uintptr_t>(packed_bias.raw_data()) % 16 != 0)
        packed_bias = raw::copy(packed_bias);
      args.bias = packed_bias.raw_data();
    }
    if (z.defined()) args.z = z.raw_data();
    args.result = act.raw_data();
    gelu_product_forward_slot(x.device(), args);
  } else {
    z = make_z();
    multiply_into(z, operands.rows, raw::transpose(operands.weight, 0, 1), 0, {.bias = operands.bias});
    if (z.elements() > 0)
      unary_forward_slot(z.device(), {kGelu, z.dtype(), z.elements(), z.raw_data(), nullptr, act.raw_data()});
  }
  return record("linear", {x, weight, bias}, act, {operands.rows, operands.weight, z}, GeluVjp{});
}

// x W^T + b in f32, with x in bf16. The gradient is rounded once, as products read it.
Tensor linear_in_f32(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Operands operands = operands_of(x, weight, {});
  check_bias("linear", x, weight, bias);
  const Tensor y = Tensor::empty(x.shape().with(-1, weight.dim(0)), Dtype::f32, x.device());
  multiply_into(raw::reshape(y, {operands.rows.dim(0), weight.dim(0)}), operands.rows,
                raw::transpose(operands.weight, 0, 1), 0,
                {.bias = bias.defined() ? raw::cast(bias, Dtype::f32) : bias});
  return record("linear", {x, weight, bias}, y, {operands.rows, operands.weight}, [](VjpContext& v) {
    accumulate_gradients(v, raw::cast(flat_rows(v.dy()), Dtype::bf16), {}, nullptr);
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearOptions& options) {
  const bool relu = options.relu;
  if (relu && options.gelu) fail<ValueError>("linear: both relu and gelu (one activation)");
  if (options.upcast) {
    if (relu || options.gelu || options.residual.defined())
      fail<ValueError>("linear: upcast beside an activation or a residual (upcast what linear returns)");
    if (is_bf16(x)) return linear_in_f32(x, weight, bias);
  }
  if (const Tensor& residual = options.residual; residual.defined()) {
    check_linear("linear", x, weight);
    check_residual("linear", residual, x, weight);
    if (!relu && !options.gelu && fuses_products(x.device()))
      return added_in_product(residual, x, weight, bias);
    return residual + linear(x, weight, bias, {.relu = relu, .gelu = options.gelu});
  }
  // The kernel that differentiates GELU as it sums is of bf16.
  if (options.gelu)
    return uses_cpu_path(x.device()) || x.dtype() != Dtype::bf16 ? gelu(linear(x, weight, bias))
                                                                 : linear_with_gelu(x, weight, bias);
  const Operands operands = operands_of(x, weight, bias);
  const Tensor y = Tensor::empty(x.shape().with(-1, weight.dim(0)), x.dtype(), x.device());
  const Tensor y_rows = raw::reshape(y, {operands.rows.dim(0), weight.dim(0)});
  const std::shared_ptr<PackedWeights>& loop_weights = PackedWeightScope::current();
  multiply_into(y_rows, operands.rows, raw::transpose(operands.weight, 0, 1), 0,
                {.bias = operands.bias, .relu = relu, .loop_weights = loop_weights.get()});
  return record("linear", {x, weight, bias}, y, {operands.rows, operands.weight, relu ? y_rows : Tensor()},
                LinearVjp{relu, false, !relu && has_f32_gradient(bias), loop_weights});
}

namespace detail {
void linear_gradients(VjpContext& v, const Tensor& dz) {
  accumulate_gradients(v, dz, {}, nullptr);
}
}  // namespace detail

namespace {

// One view of all matrices, stacked; undefined unless each begins where the one before ends. Also undefined
// on the CPU, where a call costs nothing and an operand that fits a cache is worth more: with the two
// matrices of a gated MLP in one product a step of a small Llama takes 15 to 20 % longer (docs/choices.md).
Tensor stacked(const std::vector<Tensor>& matrices) {
  const Tensor& first = matrices[0];
  if (uses_cpu_path(first.device())) return {};
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
struct SideBySideVjp {
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
      return multiply_into(all, raw::transpose(dy, 0, 1), v.saved(0), gradients[0].beta,
                           {.precision = matmul_precision(factors[0])});
    for (std::size_t i = 0; i < weights; ++i)
      if (gradients[i].tensor.defined())
        multiply_into(gradients[i].tensor, raw::transpose(dys[i], 0, 1), v.saved(0), gradients[i].beta,
                      {.precision = matmul_precision(factors[i])});
  }
};

// The products side by side, and the inputs and saved tensors of the node.
struct SideBySide {
  Tensor y;
  std::vector<Tensor> inputs, saved;
};

SideBySide side_by_side(const char* op, const Tensor& x, const std::vector<Tensor>& weights) {
  if (weights.empty()) fail<ValueError>("{}: no weights (at least one)", op);
  std::int64_t width = 0;
  for (const Tensor& weight : weights) {
    check_linear(op, x, weight);
    width += weight.dim(0);
  }
  const Tensor rows = flat_rows(x);
  SideBySide products{Tensor::empty(x.shape().with(-1, width), x.dtype(), x.device()), {x}, {rows}};
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

Tensor linear(const Tensor& x, const std::vector<Tensor>& weights) {
  const SideBySide products = side_by_side("linear", x, weights);
  record_many("linear", products.inputs, {products.y}, products.saved, SideBySideVjp{weights.size(), false});
  return products.y;
}

std::vector<Tensor> linear_parts(const Tensor& x, const std::vector<Tensor>& weights) {
  // On the CPU, slices with a larger row stride cost 2 % of a step of a small Llama.
  if (!weights.empty() && x.defined() && uses_cpu_path(x.device())) {
    std::vector<Tensor> products;
    for (const Tensor& weight : weights) products.push_back(linear(x, weight));
    return products;
  }
  const SideBySide products = side_by_side("linear_parts", x, weights);
  std::vector<Tensor> parts;
  std::int64_t first = 0;
  for (const Tensor& weight : weights) {
    parts.push_back(raw::narrow(products.y, -1, first, weight.dim(0)));
    first += weight.dim(0);
  }
  record_many("linear_parts", products.inputs, parts, products.saved, SideBySideVjp{weights.size(), true});
  return parts;
}

}  // namespace eddy
