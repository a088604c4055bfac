// Products into existing memory: every case is one call of the gemm slot.
#include "ops/product/product.h"

#include <algorithm>

#include "ops/cast/upcast.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/gemm.h"
#include "ops/product/packed_weights.h"
#include "tensor/transfer.h"

namespace eddy::detail {
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

// bf16 products on a device that has none: upcasts the operands, and rounds a bf16 result once.
void multiply_upcast(const Tensor& c, const Tensor& a, const Tensor& b, double beta,
                     const ProductOptions& options) {
  const auto upcast_of = [](const Tensor& x) { return raw::cast(x, Dtype::f32); };
  ProductOptions upcast{.relu = options.relu, .precision = options.precision};
  if (options.bias.defined()) upcast.bias = upcast_of(options.bias);
  if (c.dtype() == Dtype::f32) return multiply_into(c, upcast_of(a), upcast_of(b), beta, upcast);
  const Tensor sum = beta == 0 ? Tensor::empty(c.shape(), Dtype::f32, c.device()) : upcast_of(c);
  multiply_into(sum, upcast_of(a), upcast_of(b), beta, upcast);
  raw::cast_into(c, sum);
}

bool fits(Device device, const GemmArgs* product) {
  bool answer = false;
  if (device != kCpu) product_supports_slot(device, {product, &answer});
  return answer;
}

std::int64_t row_stride(const Tensor& x) {
  return x.dim(0) == 1 ? x.dim(1) : x.strides()[0];
}

// Whether x is a matrix of contiguous rows.
bool is_row_major(const Tensor& x) {
  return x.rank() == 2 && x.elements() > 0 && (x.dim(1) == 1 || x.strides()[1] == 1) &&
         row_stride(x) >= x.dim(1);
}

}  // namespace

Tensor readable_by_gemm(const Tensor& x) {
  std::int64_t inner, outer;
  return layout_of(x).usable && batch_levels(x, &inner, &outer) ? x : raw::copy(x);
}

void multiply_into(const Tensor& c, const Tensor& a_any, const Tensor& b_any, double beta,
                   const ProductOptions& options) {
  if (must_upcast(a_any)) return multiply_upcast(c, a_any, b_any, beta, options);
  const auto& [bias, relu, loop_weights, precision] = options;
  Tensor a = readable_by_gemm(a_any), b = readable_by_gemm(b_any);
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
  const std::int64_t columns = c.dim(-1);
  const std::int64_t row_stride = target.rank() >= 2 && target.dim(-2) > 1
                                      ? std::max(columns, target.strides()[target.rank() - 2])
                                      : columns;
  GemmArgs g{a.dtype(),    la.transposed, lb.transposed, c.dim(-2),     columns,           a.dim(-1),
             a.raw_data(), la.row_stride, b.raw_data(),  lb.row_stride, target.raw_data(), row_stride};
  g.c_f32 = c.dtype() == Dtype::f32;
  g.beta = beta;
  g.precision = coarsest(precision, a_any, b_any);
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
      unary_forward_slot(
          c.device(), {pointwise::kReluIndex, c.dtype(), c.elements(), c.raw_data(), nullptr, c.raw_data()});
    return;
  }
  const Tensor packed_bias = bias.defined() ? raw::contiguous(bias) : Tensor();
  if (bias.defined()) g.bias = packed_bias.raw_data();
  g.relu = relu;
  if (PackedWeights* const packed = PackedWeights::of(b, loop_weights, g.precision);
      packed != nullptr && levels == 0 && b.raw_data() == b_any.raw_data() && !g.transpose_a)
    g.panels_b = packed->panels_for(b, g.m, g.precision);
  gemm_slot(c.device(), g);
}

bool fuses_products(Device device) {
  return fits(device, nullptr);
}

bool adds_in_products(const Tensor& x) {
  return x.dtype() == Dtype::bf16 && fuses_products(x.device());
}

void multiply_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const Tensor& bias) {
  if (is_row_major(y) && is_row_major(residual) && row_stride(residual) == row_stride(y) && is_row_major(x) &&
      is_row_major(weight) && (!bias.defined() || bias.contiguous())) {
    GemmArgs g{x.dtype(),    false,        true,          y.dim(0),          y.dim(1),
               x.dim(1),     x.raw_data(), row_stride(x), weight.raw_data(), row_stride(weight),
               y.raw_data(), row_stride(y)};
    g.c_f32 = y.dtype() == Dtype::f32;
    g.precision = coarsest(MatmulPrecision::f32, x, weight);
    if (bias.defined()) g.bias = bias.raw_data();
    g.addend = residual.raw_data();
    g.beta = 1;
    if (fits(y.device(), &g)) return gemm_slot(y.device(), g);
  }
  multiply_into(y, x, raw::transpose(weight, 0, 1), 0, {.bias = bias});
  raw::add_into(y, residual);
}

Tensor flat_rows(const Tensor& x) {
  const std::int64_t width = x.dim(-1);
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return raw::reshape(raw::contiguous(x), {rows, width});
}

}  // namespace eddy::detail
