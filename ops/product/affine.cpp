#include "ops/product/affine.h"

#include "autograd/tape.h"
#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/core/gradient_buffer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/fused_product.h"
#include "ops/product/product.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {
namespace {

constexpr int kRelu = pointwise::IndexOf<pointwise::Relu, pointwise::UnaryOps>::value;

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

}  // namespace

void check_linear(const char* op, const Tensor& x, const Tensor& weight) {
  if (!widens(x)) checks::floating(op, x);
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

}  // namespace eddy
