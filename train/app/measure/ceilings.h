// The ceilings of this machine, measured now: the rate of a large matrix product and the bandwidth of memory.
// They give the roofline of an op:
//
//   time >= max(operations / product rate, bytes / bandwidth)
//
// Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 2009; copy and triad as in J. McCalpin's
// STREAM.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/product/gemm.h"
#include "tensor/tensor.h"
#include "train/app/measure/measurement.h"

namespace eddy::app {

// The best and the median of several runs.
// units: 1e9 per second.
struct Rate {
  double best = 0;
  double median = 0;
};

// Bandwidth of arrays of `bytes` in total. It counts what the program reads and writes; a cache line that is
// fetched only to be overwritten does not count.
struct Bandwidth {
  std::int64_t bytes = 0;
  Rate copy;   // a = b
  Rate triad;  // a = b + c
  double best() const { return copy.best > triad.best ? copy.best : triad.best; }
};

struct Ceilings {
  Device device = kCpu;
  int threads = 1;
  Rate product;  // GFLOP/s of f32 through gemm_slot, in the precision asked for, with the threads in use
  Rate product_one_blas;  // the same by the library for products on one thread; 0 for a GPU
  Rate rounded_product;   // the same with factors rounded to bf16; 0 where the CPU level has none
  // GFLOP/s of the instructions that these products consist of, on registers alone; 0 for a GPU.
  Rate instruction, rounded_instruction;
  std::vector<Bandwidth> memory;  // GB/s, f32, from small to large

  // Returns the GB/s for work on so many bytes: the rate of the smallest measured arrays that are at least as
  // large, so that work that fits a cache is compared with that cache.
  double bandwidth_for(double bytes) const;
  // Returns the least seconds for so many operations and bytes.
  double least_seconds(double flops, double bytes) const;
};

// The GFLOP/s of the CPU's instruction for products in this precision, on registers alone, on all threads in use.
double run_instruction(MatmulPrecision precision = MatmulPrecision::f32);

// A square matrix product that is set up once and run between other measurements: f32, or on a GPU also bf16.
class ProductProbe {
 public:
  explicit ProductProbe(std::int64_t size, Device device = kCpu, Dtype dtype = Dtype::f32,
                        MatmulPrecision precision = MatmulPrecision::f32);
  // Returns the GFLOP/s of one product through gemm_slot, with the threads in use; on a GPU of several in a
  // row.
  double run() const { return run(precision_); }
  double run(MatmulPrecision precision) const;
  // The same by the library for products (ops/product/blas.h) on the calling thread, for a probe on the CPU.
  double run_blas() const;

 private:
  detail::GemmArgs product() const;
  double gflops(int products, double seconds) const;

  std::int64_t size_;
  MatmulPrecision precision_;
  Tensor a_, b_, c_;
};

struct CeilingSizes {
  std::int64_t product = 2048;                             // rows of the square product
  std::vector<std::int64_t> bytes_per_thread = {1 << 20};  // fits the second-level cache of a core
  std::vector<std::int64_t> bytes = {32 << 20,
                                     512 << 20};  // shared cache, as in the benchmarks of ops; main memory
};

inline constexpr double kShortCeilings = 1;  // seconds for ceilings beside other measurements

// Measures for about `seconds` in all.
// errors: OutOfMemoryError; ValueError for sizes below 1.
Ceilings measure_ceilings(double seconds = 3, const CeilingSizes& sizes = {}, Device device = kCpu,
                          MatmulPrecision precision = MatmulPrecision::f32);

MeasuredTable table_of(const Ceilings& ceilings);
nlohmann::json to_json(const Ceilings& ceilings);

}  // namespace eddy::app
