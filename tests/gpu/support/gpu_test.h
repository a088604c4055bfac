// Moving tensors between the devices, and what every comparison on the GPU uses.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "ops/core/op_check.h"
#include "ops/core/op_spec.h"
#include "tensor/tensor.h"

namespace eddy::gpu_test {

// Whether the GPU is tests/emulation: large tests take smaller sizes there.
#if defined(EDDY_EMULATED_GPU)
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

inline Device gpu() {
  return cuda_device();
}

inline Tensor to_gpu(const Tensor& x) {
  return raw::to_device(x, gpu());
}
inline Tensor to_cpu(const Tensor& x) {
  return x.defined() ? raw::to_device(x, kCpu) : x;
}
inline Tensors to_cpu(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& x : tensors) result.push_back(to_cpu(x));
  return result;
}

// The same values on the GPU, with the strides that strided_copy gives on the CPU.
inline Tensor strided_on_gpu(const Tensor& x) {
  return spec_check::strided_on(x, gpu());
}

// A sample's inputs on the GPU (inputs_on).
inline Tensors inputs_on_gpu(const Tensors& inputs) {
  return spec_check::inputs_on(inputs, gpu());
}

// The same tensors, row-major, each one element behind an address that wide loads can read.
inline Tensors at_odd_addresses(const Tensors& tensors) {
  Tensors result;
  for (const Tensor& x : tensors) {
    result.push_back(x);
    if (!x.defined()) continue;
    const Tensor wide = Tensor::zeros({x.elements() + 1}, x.dtype(), x.device());
    result.back() = raw::reshape(raw::narrow(wide, 0, 1, x.elements()), x.shape());
    raw::copy_into(result.back(), x);
  }
  return result;
}

// Fills blocks of many sizes with bytes that are NaN in every floating type, and frees them, so that the next
// allocations find that and not zeros. The emulated GPU's memory is so by itself.
inline void poison_gpu() {
  if (kEmulated) return;
  Tensors blocks;
  for (std::int64_t bytes = 512; bytes <= (1 << 20); bytes *= 2)
    for (int copy = 0; copy < 6; ++copy) blocks.push_back(Tensor::full({bytes}, 255, Dtype::u8, gpu()));
}

// The largest error in units of eps times the largest wanted value; 0 for equal tensors.
inline double error_in_roundings(const Tensor& got, const Tensor& want, double eps) {
  if (!got.defined() || !want.defined()) return 0;
  const std::vector<double> a = raw::cast(got, Dtype::f64).to_vector<double>();
  const std::vector<double> b = raw::cast(want, Dtype::f64).to_vector<double>();
  double scale = 0, worst = 0;
  for (const double value : b)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (a[i] != b[i] && std::isfinite(a[i]) && std::isfinite(b[i]))
      worst = std::max(worst, std::abs(a[i] - b[i]));
  return scale > 0 ? worst / (scale * eps) : 0;
}

}  // namespace eddy::gpu_test
