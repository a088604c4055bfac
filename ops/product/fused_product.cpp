// Fused products where the device supports them, else a plain product and separate kernels.
#include "ops/product/fused_product.h"
#include "ops/product/affine.h"

#include "ops/product/gemm.h"
#include "ops/product/product.h"
#include "ops/reduce/reduce.h"
#include "tensor/transfer.h"

namespace eddy {

namespace {

constexpr std::int64_t kRowBits = 128;  // a mask's row stride is a multiple of this

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

// The arguments of c = op(a) op(b), for matrices that are is_row_major.
GemmArgs product_of(const Tensor& c, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b) {
  GemmArgs g{
      a.dtype(),    transpose_a,   transpose_b,  c.dim(0),      c.dim(1),     a.dim(transpose_a ? 0 : 1),
      a.raw_data(), row_stride(a), b.raw_data(), row_stride(b), c.raw_data(), row_stride(c)};
  g.c_f32 = c.dtype() == Dtype::f32;
  return g;
}

// Whether a product can write into x: it stores 16 bytes at a time.
bool writable(const Tensor& x) {
  return x.contiguous() && reinterpret_cast<std::uintptr_t>(x.raw_data()) % 16 == 0;
}

}  // namespace

bool fuses_products(Device device) {
  return fits(device, nullptr);
}

bool adds_in_products(const Tensor& x) {
  return x.dtype() == Dtype::bf16 && fuses_products(x.device());
}

Tensor multiply_relu(const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Device device = y.device();
  if (is_row_major(y) && is_row_major(x) && is_row_major(weight) && (!bias.defined() || bias.contiguous())) {
    GemmArgs g = product_of(y, x, false, weight, true);
    if (bias.defined()) g.bias = bias.raw_data();
    g.relu = true;
    g.mask_stride = (g.n + kRowBits - 1) / kRowBits * kRowBits;
    if (fits(device, &g)) {
      const Tensor mask = Tensor::empty({g.m, g.mask_stride / 8}, Dtype::u8, device);
      g.mask = mask.raw_data();
      gemm_slot(device, g);
      return mask;
    }
  }
  multiply_into(y, x, raw::transpose(weight, 0, 1), 0, bias, true);
  return {};
}

void multiply_masked(const Tensor& dz, const Tensor& dy, const Tensor& weight, const Tensor& y,
                     const Tensor& mask) {
  if (mask.defined() && is_row_major(dz) && is_row_major(dy) && is_row_major(weight)) {
    GemmArgs g = product_of(dz, dy, false, weight, false);
    g.mask = mask.raw_data();
    g.mask_stride = 8 * mask.dim(1);
    if (fits(dz.device(), &g)) return gemm_slot(dz.device(), g);
  }
  multiply_into(dz, dy, weight, 0);
  relu_backward(dz, dz, y);
}

void multiply_add(const Tensor& y, const Tensor& residual, const Tensor& x, const Tensor& weight,
                  const Tensor& bias) {
  if (is_row_major(y) && is_row_major(residual) && row_stride(residual) == row_stride(y) && is_row_major(x) &&
      is_row_major(weight) && (!bias.defined() || bias.contiguous())) {
    GemmArgs g = product_of(y, x, false, weight, true);
    if (bias.defined()) g.bias = bias.raw_data();
    g.addend = residual.raw_data();
    g.beta = 1;
    if (fits(y.device(), &g)) return gemm_slot(y.device(), g);
  }
  multiply_into(y, x, raw::transpose(weight, 0, 1), 0, bias);
  raw::add_into(y, residual);
}

bool multiply_and_sum(const GradientBuffer& dweight, const Tensor& dy, const Tensor& x,
                      const std::function<Tensor()>& sums_buffer) {
  const Tensor& dw = dweight.tensor;
  if (!is_row_major(dw) || !is_row_major(dy) || !is_row_major(x)) return false;
  GemmArgs g = product_of(dw, dy, true, x, false);
  g.beta = dweight.beta;
  g.sums = dw.raw_data();  // only to ask
  if (!fits(dw.device(), &g)) return false;
  const Tensor sums = sums_buffer();
  const Tensor written = writable(sums) && sums.dtype() == dw.dtype()
                             ? sums
                             : Tensor::empty(sums.shape(), dw.dtype(), dw.device());
  g.sums = written.raw_data();
  gemm_slot(dw.device(), g);
  if (written.raw_data() != sums.raw_data()) raw::cast_into(sums, written);
  return true;
}

}  // namespace eddy
