// Rates, each the best of several runs, timed by events on the GPU. The inputs are normally distributed:
// products of zeros run faster because they draw less power.
#include "cuda/runtime/measure.h"

#include <algorithm>

#include "cuda/runtime/context.h"
#include "cuda/runtime/device.h"
#include "cuda/runtime/gemm.h"
#include "ops/core/op_spec.h"
#include "tensor/base/format.h"

namespace eddy::cuda {
namespace {

constexpr std::int64_t kSize = 4096;
constexpr int kRuns = 10;

// Returns the least milliseconds of several runs, after two for warm-up.
template <class Work>
double best_ms(Work&& work) {
  Timer timer;
  double best = 0;
  for (int run = -2; run < kRuns; ++run) {
    timer.start();
    work();
    const double ms = timer.stop();
    if (run == 0 || (run > 0 && ms < best)) best = ms;
  }
  return best;
}

double product_tflops(Dtype dtype, MatmulPrecision precision, const Tensor& values) {
  const Tensor a = raw::cast(values, dtype), c = Tensor::empty({kSize, kSize}, dtype, values.device());
  // B is transposed, as in a linear layer.
  GemmArgs g{dtype,        false, true,         kSize, kSize,        kSize,
             a.raw_data(), kSize, a.raw_data(), kSize, c.raw_data(), kSize};
  g.precision = precision;
  const double operations =
      2.0 * static_cast<double>(kSize) * static_cast<double>(kSize) * static_cast<double>(kSize);
  return operations / best_ms([&] { gemm(g); }) / 1e9;
}

}  // namespace

std::vector<std::string> measure() {
  open();
  const Device device{DeviceType::cuda, device_index()};
  const Tensor values =
      raw::to_device(raw::cast(sample_normal({kSize, kSize}, "measure"), Dtype::f32), device);
  std::vector<std::string> lines;
  const auto product = [&](const char* name, Dtype dtype, MatmulPrecision precision = MatmulPrecision::f32) {
    lines.push_back(fmt::format("gpu product: {:.1f} TFLOP/s ({}, {} x {} x {})",
                                product_tflops(dtype, precision, values), name, kSize, kSize, kSize));
  };
  product("f32", Dtype::f32);
  product("f32 from inputs rounded to TF32", Dtype::f32, MatmulPrecision::tf32);
  product("bf16", Dtype::bf16);
  const Tensor from = Tensor::zeros({std::int64_t{1} << 26}, Dtype::f32, device),
               to = Tensor::zeros(from.shape(), Dtype::f32, device);
  const double ms = best_ms([&] { raw::copy_into(to, from); });
  lines.push_back(fmt::format("gpu copy: {:.0f} GB/s (256 MiB, reads and writes counted)",
                              2.0 * static_cast<double>(from.bytes()) / ms / 1e6));
  std::string why_none;
  for (const DeviceInfo& gpu : devices(&why_none))
    if (gpu.index == device.index) lines.push_back(clusters(gpu));
  return lines;
}

}  // namespace eddy::cuda
