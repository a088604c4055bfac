// The GPU part of `eddy bench ops`: products of layers against the bare product, and memory-bound kernels
// against a copy. The requirements are layers at the speed of the bare product, and 80 % of the rate of a
// copy for tensors that fit no cache. Times are taken between events in the GPU's stream
// (ops/core/device_clock.h), which the GPU works through without waiting. So the host's part of a call shows
// only where it takes longer than the GPU.
#pragma once

#include <cstdint>
#include <string>

#include "tensor/base/device.h"
#include "train/bench/measurement.h"

namespace eddy {

struct GpuBenchOptions {
  // Rows of the square product; the layers have a quarter of it as width, and twice as many rows.
  std::int64_t product_size = 4096;
  std::int64_t tensor_bytes = std::int64_t{128} << 20;  // size of the largest tensor of a row of the table
  std::string filter;                                   // only ops whose name contains this
  int runs = 10;                                        // after two that do not count; the best is shown
};

inline constexpr double kRequiredPercentOfCopy = 80;

// Times layers x [m, k] -> [m, n] with TF32 off: the bare product through gemm_slot, the op with a bias, and
// its backward pass (two products and the sum for the bias).
// units: 1e12 operations per second, best.
// errors: ValueError for sizes below 16 and tensors below 64 KiB; DeviceError for the CPU, which has no such
// clock; OutOfMemoryError.
MeasuredTable bench_gpu_products(const GpuBenchOptions& options, Device device);
// Times memory-bound ops over tensors of tensor_bytes, forward and backward, and names those below
// kRequiredPercentOfCopy. `copy_gbs` is the rate of a copy of tensors of this size, counting reads and writes.
MeasuredTable bench_gpu_memory(const GpuBenchOptions& options, double copy_gbs, Device device);

// Returns the time of a grid barrier of the fused recurrences: what a kernel takes longer for each one more.
// units: microseconds, best.
double bench_grid_barrier(const GpuBenchOptions& options, Device device);

}  // namespace eddy
