#include "ops/product/affine.h"

#include <utility>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/gradient_buffer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/fused_product.h"
#include "ops/product/product.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {
namespace {

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
  return {dy.device() == kCpu ? gradient / (4 * row) : -1, 2 * gradient / row};
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

// Passes on dy^T x, and with it the sum of dy over rows if one product gives both. Returns whether it does.
bool accumulate_both(VjpContext& v, const LinearGradient& layer) {
  const auto& [weight, dy, x] = layer;
  const GradientBuffer dweight = gradient_buffer(v, weight);
  PartialSums dbias;
  bool direct = false;
  const bool fused = multiply_and_sum(dweight, dy, x, [&] {
    dbias = partial_sums_of(v, weight + 1, 1, dy.dim(1), dweight.tensor.dtype(), dy.device());
    // The product overwrites the sums, so it cannot add to a gradient.
    direct = dbias.to.tensor.defined() && dbias.to.beta == 0;
    return direct ? dbias.to.tensor : raw::reshape(dbias.rows, {dy.dim(1)});
  });
  if (!fused) multiply_into(dweight.tensor, raw::transpose(dy, 0, 1), x, dweight.beta);
  if (fused && !direct) add_partial_sums({dbias});
  return fused;
}

// Passes on the sum of dy over rows, for the biases of `layers`. On a GPU blocks of rows are summed first, as
// every long sum is, in one launch for two layers; the sums of the blocks may be deferred.
void give_column_sums(VjpContext& v, const std::vector<LinearGradient>& layers) {
  std::vector<RowBlocks> blocks;
  std::vector<PartialSums> sums;
  for (const auto& [weight, dy, x] : layers) {
    const int bias = weight + 1;
    const std::int64_t rows = dy.dim(0);
    if (dy.device() == kCpu || rows <= kSummedRows || !dy.contiguous()) {
      v.sink.into(bias, [&](const Tensor& dst, float beta) { sum_into(dst, dy, beta); });
      continue;
    }
    PartialSums of_layer = partial_sums_of(v, bias, summed_blocks(rows), dy.dim(1), Dtype::f32, dy.device());
    if (const auto& [dst, beta] = of_layer.to; dst.defined() && dst.dtype() != Dtype::f32) {
      sum_into(dst, dy, beta);
      continue;
    }
    blocks.push_back({dy, of_layer.rows});
    sums.push_back(std::move(of_layer));
  }
  sum_row_blocks(blocks);
  for (const PartialSums& of_layer : sums) add_partial_sums({of_layer});
}

}  // namespace

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
    unary_backward_slot(dz.device(), {pointwise::kReluIndex, dz.dtype(), dz.elements(), y.raw_data(),
                                      dy.raw_data(), dz.raw_data()});
}

void give_weight_gradients(VjpContext& v, std::initializer_list<LinearGradient> layers) {
  std::vector<LinearGradient> left;  // whose biases are still to be summed
  for (const LinearGradient& layer : layers) {
    const auto& [weight, dy, x] = layer;
    const int bias = weight + 1;
    if (v.sink.needs(weight) && v.sink.needs(bias) && fuses_products(dy.device()) && dy.dim(0) > 0) {
      if (!accumulate_both(v, layer)) left.push_back(layer);
      continue;
    }
    if (v.sink.needs(weight)) give_row_product(v, weight, dy, x);
    if (v.sink.needs(bias)) left.push_back(layer);
  }
  give_column_sums(v, left);
}

}  // namespace eddy
