// The GPU part of `eddy bench ops`: products of layers beside the bare product.
#include "train/app/measure/ops.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "autograd/tape.h"
#include "ops/backends.h"
#include "ops/core/device_clock.h"
#include "ops/core/op_spec.h"
#include "ops/core/parameter_cache.h"
#include "ops/product/gemm.h"
#include "ops/product/linear.h"
#include "tensor/base/format.h"
#include "train/app/measure/bench.h"
#include "train/config/run_config.h"

namespace eddy::app {
using namespace training;
namespace {

// Calls between two stamps of the clock: a stamp takes some microseconds, and the shortest call some fifty.
constexpr int kCallsPerStamp = 4;

// Returns the least seconds of one call of each part. A part receives the index of the call, 0 to
// kCallsPerStamp - 1. All calls of a part run in a row, then those of the next part; this is repeated `runs`
// times, and the host waits only at the end.
using Part = std::function<void(std::size_t)>;
std::vector<double> best_seconds(Device device, int runs, const std::vector<Part>& parts) {
  const std::unique_ptr<DeviceClock> clock = device_clock(device);
  if (clock == nullptr) fail<DeviceError>("bench: {} has no clock of its own (a GPU has)", to_string(device));
  const auto call = [](const Part& part) {
    for (std::size_t i = 0; i < kCallsPerStamp; ++i) part(i);
  };
  for (int warm = 0; warm < 2; ++warm)
    for (const Part& part : parts) call(part);
  for (int run = 0; run < runs; ++run) {
    for (const Part& part : parts) {
      clock->stamp();
      call(part);
    }
    clock->stamp();
  }
  std::vector<double> best(parts.size(), std::numeric_limits<double>::infinity());
  for (int run = 0; run < runs; ++run)
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto stamp = static_cast<std::int64_t>(i) + run * static_cast<std::int64_t>(parts.size() + 1);
      best[i] = std::min(best[i], std::max(clock->seconds(stamp, stamp + 1), 1e-9) / kCallsPerStamp);
    }
  return best;
}

Tensor numbers(const Shape& shape, Dtype dtype, Device device) {
  return repeated_normal(shape, "bench", dtype, device);
}

struct Layer {
  const char* name;
  std::int64_t m, n, k;
};

// With size 4096: 8 sequences of 1024 tokens, a width of 1024, a vocabulary of 32768.
std::vector<Layer> layers_of(std::int64_t size) {
  const std::int64_t rows = 2 * size, width = size / 4;
  return {{"square", size, size, size},
          {"q, k, v", rows, 3 * width, width},
          {"mlp up", rows, 4 * width, width},
          {"mlp down", rows, width, 4 * width},
          {"readout", rows, 32 * width, width}};
}

std::vector<Cell> bench_layer(const Layer& layer, Precision precision, int runs, Device device) {
  const bool half = precision == Precision::bf16;
  const Dtype dtype = half ? Dtype::bf16 : Dtype::f32;
  const MatmulPrecision rounding =
      precision == Precision::tf32 ? MatmulPrecision::tf32 : MatmulPrecision::f32;
  const Tensor x = require_grad(numbers({layer.m, layer.k}, dtype, device)),
               weight = require_grad(numbers({layer.n, layer.k}, Dtype::f32, device)),
               bias = require_grad(numbers({layer.n}, Dtype::f32, device)),
               rounded = raw::cast(weight, dtype), y = Tensor::empty({layer.m, layer.n}, dtype, device);
  // As in the arena of a model: the bf16 copy is rounded once, not at every use.
  for (const Tensor& x32 : {weight, bias}) mark_parameters(x32, rounding, half);
  detail::GemmArgs args{};
  args.dtype = dtype;
  args.precision = rounding;
  args.m = layer.m;
  args.n = args.ldc = layer.n;
  args.k = args.lda = args.ldb = layer.k;
  args.transpose_b = true;
  args.a = x.raw_data();
  args.b = rounded.raw_data();
  args.c = y.raw_data();
  const double product =
      best_seconds(device, runs, {[&](std::size_t) { detail::gemm_slot(device, args); }})[0];
  const Part forward_alone = [&](std::size_t) {
    const NoGrad no_grad;
    static_cast<void>(linear(x, weight, bias));
  };
  const Tensor dy = numbers(y.shape(), dtype, device);
  Tensors ys(kCallsPerStamp);
  const Part forward = [&](std::size_t i) { ys[i] = linear(x, weight, bias); };
  const Part back = [&](std::size_t i) {
    backward({ys[i]}, {dy});
    ys[i] = Tensor();
    for (const Tensor& leaf : {x, weight, bias}) zero_grad(leaf);
  };
  const double forward_seconds = best_seconds(device, runs, {forward_alone})[0],
               backward_seconds = best_seconds(device, runs, {forward, back})[1];
  const double operations =
      2e-12 * static_cast<double>(layer.m) * static_cast<double>(layer.n) * static_cast<double>(layer.k);
  const double bare = operations / product, linear = operations / forward_seconds,
               backward_rate = 2 * operations / backward_seconds;
  return {layer.name,
          fmt::format("[{}, {}] to {}", layer.m, layer.k, layer.n),
          value_name(precision),
          bare,
          linear,
          100 * linear / bare,
          backward_rate,
          100 * backward_rate / bare,
          layer.m,
          layer.n,
          layer.k};
}

}  // namespace

MeasuredTable bench_gpu_products(const GpuBenchOptions& options, Device device) {
  if (options.product_size < 16)
    fail<ValueError>("bench: a product of {} rows on a GPU (at least 16)", options.product_size);
  MeasuredTable table;
  table.key = "gpu.products";
  table.columns = {{"layer", "TFLOP/s"},
                   {"", "[m, k] to n"},
                   {"precision", "precision"},
                   {"product_tflops", "product"},
                   {"linear_tflops", "linear"},
                   {"", "% of product"},
                   {"linear_backward_tflops", "backward"},
                   {"", "% of product"},
                   {"m", ""},
                   {"n", ""},
                   {"k", ""}};
  for (const Layer& layer : layers_of(options.product_size))
    for (const Precision precision : {Precision::f32, Precision::tf32, Precision::bf16})
      table.add(bench_layer(layer, precision, options.runs, device));
  return table;
}

}  // namespace eddy::app
