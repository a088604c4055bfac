// Products of layers, and a table of memory-bound ops with the bytes that each pass must move.
#include "train/bench/gpu.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "autograd/tape.h"
#include "ops/attention/rotary.h"
#include "ops/backends.h"
#include "ops/core/device_clock.h"
#include "ops/core/op_spec.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/gemm.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "train/bench/bench.h"

namespace eddy {
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

// Seconds of the forward pass without a tape, and of the backward pass where there is one.
struct Passes {
  double forward = 0, backward = 0;
};

Passes time_passes(const OpFunction& run, const Tensors& inputs, bool backwards, int runs, Device device) {
  Passes passes;
  {
    const NoGrad no_grad;
    passes.forward = best_seconds(device, runs, {[&](std::size_t) { static_cast<void>(run(inputs)); }})[0];
  }
  if (!backwards) return passes;
  Tensors dys;
  for (const Tensor& y : run(inputs)) dys.push_back(numbers(y.shape(), y.dtype(), device));
  std::vector<Tensors> ys(kCallsPerStamp);
  const Part forward = [&](std::size_t i) { ys[i] = run(inputs); };
  const Part back = [&](std::size_t i) {
    backward(ys[i], dys);
    ys[i].clear();
    for (const Tensor& x : inputs)
      if (requires_grad(x)) zero_grad(x);
  };
  passes.backward = best_seconds(device, runs, {forward, back})[1];
  return passes;
}

// ---- products

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

std::vector<Cell> bench_layer(const Layer& layer, const char* precision, int runs, Device device) {
  const bool half = precision == std::string_view("bf16");
  const Dtype dtype = half ? Dtype::bf16 : Dtype::f32;
  set_tf32(precision == std::string_view("tf32"));
  const Tensor x = require_grad(numbers({layer.m, layer.k}, dtype, device)),
               weight = require_grad(numbers({layer.n, layer.k}, Dtype::f32, device)),
               bias = require_grad(numbers({layer.n}, Dtype::f32, device)),
               rounded = raw::cast(weight, dtype), y = Tensor::empty({layer.m, layer.n}, dtype, device);
  // As in the arena of a model: the bf16 copy is rounded once, not at every use.
  for (const Tensor& x32 : {weight, bias})
    if (half) x32.buffer()->keep_bf16_copy();
  GemmArgs args{};
  args.dtype = dtype;
  args.m = layer.m;
  args.n = args.ldc = layer.n;
  args.k = args.lda = args.ldb = layer.k;
  args.transpose_b = true;
  args.a = x.raw_data();
  args.b = rounded.raw_data();
  args.c = y.raw_data();
  const double product = best_seconds(device, runs, {[&](std::size_t) { gemm_slot(device, args); }})[0];
  const Passes passes = time_passes([](const Tensors& in) { return linear(in[0], in[1], in[2]); },
                                    {x, weight, bias}, true, runs, device);
  set_tf32(false);
  const double operations =
      2e-12 * static_cast<double>(layer.m) * static_cast<double>(layer.n) * static_cast<double>(layer.k);
  const double bare = operations / product, linear = operations / passes.forward,
               back = 2 * operations / passes.backward;
  return {layer.name, fmt::format("[{}, {}] to {}", layer.m, layer.k, layer.n),
          precision,  bare,
          linear,     100 * linear / bare,
          back,       100 * back / bare,
          layer.m,    layer.n,
          layer.k};
}

// ---- memory-bound kernels

constexpr std::int64_t kWidth = 1024, kHeadSize = 64;

struct MemoryCase {
  const char* op;
  double forward, backward;  // tensors to read and write; 0: the pass is not measured
  std::function<Tensors(std::int64_t rows, Dtype, Device)> inputs;  // of rows * kWidth elements each
  OpFunction run;
};

Tensor matrix(std::int64_t rows, Dtype dtype, Device device) {
  return numbers({rows, kWidth}, dtype, device);
}
Tensors one_matrix(std::int64_t rows, Dtype dtype, Device device) {
  return {require_grad(matrix(rows, dtype, device))};
}
// [batch, time, heads, head_size].
Tensors head_tensors(std::int64_t rows, Dtype dtype, Device device) {
  const std::int64_t time = std::gcd(rows, std::int64_t{1024});
  return {require_grad(numbers({rows / time, time, kWidth / kHeadSize, kHeadSize}, dtype, device))};
}
// Parameters of a norm are f32 even beside bf16.
Tensor parameter(Device device) {
  return require_grad(numbers({kWidth}, Dtype::f32, device));
}
Tensors with_classes(std::int64_t rows, Dtype dtype, Device device) {
  const std::int64_t classes = std::min<std::int64_t>(32768, rows * kWidth / 4),
                     examples = rows * kWidth / classes;
  return {require_grad(numbers({examples, classes}, dtype, device)),
          raw::to_device(sample_indices({examples}, "bench.classes", classes), device)};
}
// Returns each row index once, permuted, so that both passes move every row.
Tensors with_ids(std::int64_t rows, Dtype dtype, Device device) {
  constexpr std::int64_t kStep = 1000003;  // a prime: i kStep mod rows is a permutation
  std::vector<std::int64_t> ids(static_cast<std::size_t>(rows));
  for (std::int64_t i = 0; i < rows; ++i) ids[static_cast<std::size_t>(i)] = i * kStep % rows;
  return {require_grad(matrix(rows, dtype, device)), raw::to_device(Tensor::from(ids, {rows}), device)};
}

std::vector<MemoryCase> memory_cases() {
  return {
      {"gelu", 2, 3, one_matrix, [](const Tensors& x) { return gelu(x[0]); }},
      {"add", 3, 0,
       [](std::int64_t rows, Dtype dtype, Device device) {
         return Tensors{matrix(rows, dtype, device), matrix(rows, dtype, device)};
       },
       [](const Tensors& x) { return add(x[0], x[1]); }},
      {"dropout", 2, 2, one_matrix,
       [](const Tensors& x) { return dropout(x[0], 0.1, random_key(1, "bench", 0)); }},
      // Backward: reads the gradients of sum and norm, and the sum; writes one gradient.
      {"add_layer_norm", 4, 4,
       [](std::int64_t rows, Dtype dtype, Device device) {
         return Tensors{require_grad(matrix(rows, dtype, device)), matrix(rows, dtype, device),
                        parameter(device), parameter(device)};
       },
       [](const Tensors& x) {
         const SumAndNorm both = add_layer_norm(x[0], x[1], x[2], x[3]);
         return Tensors{both.sum, both.norm};
       }},
      {"rms_norm", 2, 3,
       [](std::int64_t rows, Dtype dtype, Device device) {
         return Tensors{require_grad(matrix(rows, dtype, device)), parameter(device)};
       },
       [](const Tensors& x) { return rms_norm(x[0], x[1]); }},
      {"unit_norm", 2, 3, head_tensors, [](const Tensors& x) { return unit_norm(x[0]); }},
      {"softmax", 2, 3, one_matrix, [](const Tensors& x) { return softmax(x[0]); }},
      {"cross_entropy", 1, 2, with_classes, [](const Tensors& x) { return cross_entropy(x[0], x[1]); }},
      {"rotary", 2, 2, head_tensors, [](const Tensors& x) { return rotary(x[0], 0); }},
      {"contiguous, heads before time", 2, 0, head_tensors,
       [](const Tensors& x) { return contiguous(transpose(x[0], 1, 2)); }},
      {"contiguous, transposed", 2, 0, one_matrix,
       [](const Tensors& x) { return contiguous(transpose(x[0], 0, 1)); }},
      {"sum, of rows", 1, 0, one_matrix, [](const Tensors& x) { return sum(x[0], 1); }},
      {"sum, of columns", 1, 0, one_matrix, [](const Tensors& x) { return sum(x[0], 0); }},
      {"embedding", 2, 2, with_ids, [](const Tensors& x) { return embedding(x[0], x[1]); }},
  };
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
    for (const char* precision : {"f32", "tf32", "bf16"})
      table.add(bench_layer(layer, precision, options.runs, device));
  return table;
}

MeasuredTable bench_gpu_memory(const GpuBenchOptions& options, double copy_gbs, Device device) {
  if (options.tensor_bytes < 1 << 16)
    fail<ValueError>("bench: tensors of {} bytes on a GPU (at least 65536)", options.tensor_bytes);
  MeasuredTable table;
  table.key = "gpu.memory";
  table.columns = {{"op", "kernels bound by memory"}, {"pass", "pass"},   {"dtype", "dtype"},
                   {"bytes", "MB at least"},          {"ms", "ms"},       {"gbs", "GB/s"},
                   {"percent_of_copy", "% of copy"},  {"", "requirement"}};
  for (const MemoryCase& one : memory_cases()) {
    if (std::string_view(one.op).find(options.filter) == std::string_view::npos) continue;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const std::int64_t row_bytes = kWidth * static_cast<std::int64_t>(dtype_bytes(dtype));
      const std::int64_t count = options.tensor_bytes / row_bytes / 16 * 16;
      const Passes passes =
          time_passes(one.run, one.inputs(count, dtype, device), one.backward > 0, options.runs, device);
      const auto row = [&](const char* pass, double tensors, double seconds) {
        const double bytes = tensors * static_cast<double>(count * row_bytes), gbs = bytes / seconds * 1e-9;
        const double percent = 100 * gbs / copy_gbs;
        table.add(
            {one.op,
             pass,
             dtype_name(dtype),
             {bytes, table_number(bytes * 1e-6)},
             seconds * 1e3,
             gbs,
             percent,
             percent >= kRequiredPercentOfCopy ? "" : fmt::format("below {:.0f}", kRequiredPercentOfCopy)});
      };
      row("forward", one.forward, passes.forward);
      if (one.backward > 0) row("backward", one.backward, passes.backward);
    }
  }
  return table;
}

double bench_grid_barrier(const GpuBenchOptions& options, Device device) {
  constexpr int kFew = 1, kMany = 101;
  const auto barriers = [](int count) { return [=](std::size_t) { run_grid_barriers(count); }; };
  const std::vector<double> seconds = best_seconds(device, options.runs, {barriers(kFew), barriers(kMany)});
  return (seconds[1] - seconds[0]) / (kMany - kFew) * 1e6;
}

}  // namespace eddy
