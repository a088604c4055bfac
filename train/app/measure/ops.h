// `eddy bench ops`: the speed of every op against the roofline of the machine, the host cost of a call, and
// the optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/core/matmul_precision.h"
#include "train/app/measure/ceilings.h"
#include "train/app/measure/measurement.h"

namespace eddy::app {

// Products of layers on a GPU against the bare product, whose speed they shall have. Times are taken between
// events in the GPU's stream (ops/core/device_clock.h), which the GPU works through without waiting. So the
// host's part of a call shows only where it takes longer than the GPU.
struct GpuBenchOptions {
  // Rows of the square product; the layers have a quarter of it as width, and twice as many rows.
  std::int64_t product_size = 4096;
  int runs = 10;  // after two that do not count; the best is shown
};

struct OpsBenchOptions {
  Device device = kCpu;
  std::string filter;    // only ops whose name contains this
  double seconds = 0.2;  // for each measurement; each op has two
  MatmulPrecision matmul =
      MatmulPrecision::f32;               // of products, whose rate is then that of such a large product
  std::int64_t host_ops = 4096;           // length of the chain of one-element additions
  std::int64_t optimizer_parameters = 0;  // 0: 10 M, on a GPU 150 M
  CeilingSizes ceilings;                  // on a GPU the size of the product is that of `gpu`
  // Called before each op with the number of those that are done, and of all. May be empty.
  std::function<void(std::int64_t, std::int64_t)> progress{};
  GpuBenchOptions gpu;
};

// Returns the names of the ops that bench_ops times: those with a benchmark sample and the filter in their name.
// errors: ValueError when there is none.
std::vector<std::string> benched_ops(const std::string& filter);
// Times the forward and backward pass of each op that has a benchmark sample. An op that the device does not
// run, or that does not fit in the memory, has a note that says why.
// errors: ValueError when no op matches the filter, or a size is below 1.
MeasuredTable bench_op_rows(const OpsBenchOptions& options, const Ceilings& ceilings);
// Returns the host cost of one call of an op, apart from its arithmetic: "forward" without a tape, "recorded" with
// one and with freeing the graph, "backward" of one node and freeing the graph.
// units: microseconds per op, best of several chains.
nlohmann::json bench_host_cost(const OpsBenchOptions& options);
// Returns "parameters", and for "adamw" and "norm", the norm of the gradient: _ms, _ns_per_parameter, and _gbs
// of the bytes that must move (28 and 4 for each parameter).
nlohmann::json bench_optimizer(const OpsBenchOptions& options);
// Times layers x [m, k] -> [m, n] in f32, tf32 and bf16: the bare product through gemm_slot, the op with a bias, and
// its backward pass (two products and the sum for the bias).
// units: 1e12 operations per second, best.
// errors: ValueError for sizes below 16; DeviceError for the CPU, which has no such clock; OutOfMemoryError.
MeasuredTable bench_gpu_products(const GpuBenchOptions& options, Device device);

// Runs all of these, on a CPU in the memory that is free.
// errors: as bench_op_rows and bench_gpu_products; OutOfMemoryError.
Measurement bench_ops(const OpsBenchOptions& options);

}  // namespace eddy::app
