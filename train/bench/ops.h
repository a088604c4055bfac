// `eddy bench ops`: the speed of every op against the roofline of the machine, the host cost of a call, and
// the optimizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/bench/ceilings.h"
#include "train/bench/gpu.h"

namespace eddy {

struct OpsBenchOptions {
  Device device = kCpu;
  std::string filter;                     // only ops whose name contains this
  double seconds = 0.2;                   // for each measurement; each op has two
  std::int64_t host_ops = 4096;           // length of the chain of one-element additions
  std::int64_t optimizer_parameters = 0;  // 0: 10 M, on a GPU 150 M
  CeilingSizes ceilings;                  // on a GPU the size of the product is that of `gpu`
  GpuBenchOptions gpu;
};

// The speed of one op. NaN where an op has no gradient or states no cost.
// units: milliseconds and 1e9 per second.
struct OpBenchRow {
  std::string op;
  double forward_ms = 0;  // best, without a tape
  double forward_median_ms = 0;
  double backward_ms = 0;       // best of forward and backward together, minus the best forward
  double gflops = 0, gbs = 0;   // of the forward pass, by the cost that the op states
  double roofline_percent = 0;  // the least time by the ceilings over forward_ms
  const char* bound = "-";      // "compute" or "memory"
  std::string refused;          // why the device does not run the op; nothing is measured then
};

// The host cost of one call of an op, apart from its arithmetic.
// units: microseconds per op, best of several chains.
struct HostCost {
  double forward_us = 0;   // without a tape
  double recorded_us = 0;  // with a tape, including freeing the graph
  double backward_us = 0;  // one node, including freeing the graph
};

// The speed of the optimizer and of the norm of the gradient.
// units: nanoseconds per parameter (best), and GB/s of the bytes that must move (28 and 4 for each
// parameter).
struct OptimizerCost {
  std::int64_t parameters = 0;
  double adamw_ns = 0, adamw_gbs = 0;
  double norm_ns = 0, norm_gbs = 0;
  double adamw_ms() const { return adamw_ns * static_cast<double>(parameters) * 1e-6; }
  double norm_ms() const { return norm_ns * static_cast<double>(parameters) * 1e-6; }
};

struct OpsBench {
  Ceilings ceilings;
  GpuBench gpu;  // empty on the CPU
  HostCost host;
  OptimizerCost optimizer;
  std::vector<OpBenchRow> rows;
};

// Times the forward and backward pass of each op that has a benchmark sample.
// errors: ValueError when no op matches the filter, or a size is below 1.
std::vector<OpBenchRow> bench_op_rows(const OpsBenchOptions& options, const Ceilings& ceilings);
HostCost bench_host_cost(const OpsBenchOptions& options);
OptimizerCost bench_optimizer(const OpsBenchOptions& options);
// Runs all of these.
// errors: as bench_op_rows and bench_gpu_memory.
OpsBench bench_ops(const OpsBenchOptions& options);

Measurement measurement_of(const OpsBench& bench);

}  // namespace eddy
