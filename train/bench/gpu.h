// What is asked of a GPU, measured: products of layers at the speed of the bare product, and kernels that
// memory bounds at 80 % of a copy's rate, for tensors that no cache holds. Times are those between marks in
// the GPU's stream (ops/core/device_clock.h), which it works through without waiting: the host's part of a call
// shows only where it takes longer than the GPU.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy {

struct GpuBenchOptions {
  std::int64_t product_size =
      4096;  // of the square product; the layers are 1/4 of it wide, on twice the rows
  std::int64_t tensor_bytes = std::int64_t{128} << 20;  // of the largest tensor of a row
  std::string filter;                                   // only rows of ops whose name contains this
  int runs = 10;                                        // after two that are not counted; the best is shown
};

// A layer x [m, k] -> [m, n].
// units: 1e12 operations per second, best.
struct GpuProductRow {
  std::string layer;
  const char* precision = "";  // f32, tf32, bf16
  std::int64_t m = 0, n = 0, k = 0;
  double product = 0;          // the bare product, through gemm_slot
  double linear = 0;           // the op, with a bias
  double linear_backward = 0;  // its backward: two products and the sum for the bias
};

// A pass of an op over tensors of tensor_bytes.
struct GpuMemoryRow {
  std::string op;
  const char* pass = "";  // forward, backward
  Dtype dtype = Dtype::f32;
  double bytes = 0;  // that the pass must read and write at least
  double ms = 0;     // best
  double gbs = 0;    // bytes over ms
  double percent_of_copy = 0;
};
inline constexpr double kAskedPercentOfCopy = 80;

struct GpuBench {
  std::vector<GpuProductRow> products;
  std::vector<GpuMemoryRow> memory;
};

// errors: ValueError for sizes below 16 and tensors below 64 KiB; DeviceError for the CPU, which has no such
// clock; OutOfMemoryError. Products leave TF32 off.
std::vector<GpuProductRow> bench_gpu_products(const GpuBenchOptions& options, Device device);
// `copy_gbs` is the rate of a copy of tensors of this size, reads and writes counted.
std::vector<GpuMemoryRow> bench_gpu_memory(const GpuBenchOptions& options, double copy_gbs, Device device);

std::string to_text(const std::vector<GpuProductRow>& rows);
std::string to_text(const std::vector<GpuMemoryRow>& rows);
nlohmann::json to_json(const GpuBench& bench);

}  // namespace eddy
