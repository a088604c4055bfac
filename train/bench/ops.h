// Speed of every op against the machine's roofline, the cost of an op's call itself, and the optimizer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/bench/ceilings.h"
#include "train/bench/gpu.h"

namespace eddy {

struct OpsBenchOptions {
  Device device = kCpu;
  std::string filter;                     // only ops whose name contains this
  double seconds = 0.2;                   // for each measurement, two of each op
  std::int64_t host_ops = 4096;           // length of the chain of one-element additions
  std::int64_t optimizer_parameters = 0;  // 0: 10 M, on a GPU 150 M
  CeilingSizes ceilings;                  // the product's size is that of `gpu` on a GPU
  GpuBenchOptions gpu;
};

// units: milliseconds and 1e9 per second; NaN where an op has no gradient, or no cost is stated.
struct OpBenchRow {
  std::string op;
  double forward_ms = 0;  // best, without recording
  double forward_median_ms = 0;
  double backward_ms = 0;       // best of forward and backward, less the best forward
  double gflops = 0, gbs = 0;   // of the forward, by the op's stated cost
  double roofline_percent = 0;  // the least time by the ceilings, as a part of forward_ms
  const char* bound = "-";      // "compute" or "memory"
  std::string refused;          // why the device does not run the op; nothing is measured then
};

// What one call of an op costs apart from its arithmetic.
// units: microseconds per op, best of several chains.
struct HostCost {
  double forward_us = 0;   // nothing recorded
  double recorded_us = 0;  // recorded, and the graph freed
  double backward_us = 0;  // of one node, the graph freed with it
};

// units: nanoseconds per parameter (best), and GB/s of the bytes that must move (28 and 4 for each).
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

// The forward and backward of each op with a benchmark sample.
// errors: ValueError when the filter leaves no op, or a size is below 1.
std::vector<OpBenchRow> bench_op_rows(const OpsBenchOptions& options, const Ceilings& ceilings);
HostCost bench_host_cost(const OpsBenchOptions& options);
OptimizerCost bench_optimizer(const OpsBenchOptions& options);
// All of it.
// errors: as bench_op_rows and bench_gpu_memory.
OpsBench bench_ops(const OpsBenchOptions& options);

std::string to_text(const OpsBench& bench);
nlohmann::json to_json(const OpsBench& bench);

}  // namespace eddy
