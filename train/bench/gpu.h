// The GPU part of `eddy bench ops`: products of layers against the bare product, whose speed they shall have.
// Times are taken between events in the GPU's stream (ops/core/device_clock.h), which the GPU works through
// without waiting. So the host's part of a call shows only where it takes longer than the GPU.
#pragma once

#include <cstdint>

#include "tensor/base/device.h"
#include "train/bench/measurement.h"

namespace eddy {

struct GpuBenchOptions {
  // Rows of the square product; the layers have a quarter of it as width, and twice as many rows.
  std::int64_t product_size = 4096;
  int runs = 10;  // after two that do not count; the best is shown
};

// Times layers x [m, k] -> [m, n] with TF32 off: the bare product through gemm_slot, the op with a bias, and
// its backward pass (two products and the sum for the bias).
// units: 1e12 operations per second, best.
// errors: ValueError for sizes below 16; DeviceError for the CPU, which has no such clock; OutOfMemoryError.
MeasuredTable bench_gpu_products(const GpuBenchOptions& options, Device device);

// Returns the time of a grid barrier of the fused recurrences: what a kernel takes longer for each one more.
// units: microseconds, best.
double bench_grid_barrier(const GpuBenchOptions& options, Device device);

}  // namespace eddy
