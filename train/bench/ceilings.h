// What this machine gives at best, measured now: products and memory. An op's time can be no less than
// max(operations / product rate, bytes / bandwidth), its roofline.
// Source: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 2009; copy and triad as in J. McCalpin's
// STREAM.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy {

// units: 1e9 per second. `best` and `median` of several runs.
struct Rate {
  double best = 0;
  double median = 0;
};

// Bandwidth of arrays that take `bytes` in all. Counted is what the program reads and writes; a cache line
// that is fetched only to be overwritten is not.
struct Bandwidth {
  std::int64_t bytes = 0;
  Rate copy;   // a = b
  Rate triad;  // a = b + s c
  double best() const { return copy.best > triad.best ? copy.best : triad.best; }
};

struct Ceilings {
  Device device = kCpu;
  int threads = 1;
  Rate product;                   // GFLOP/s of f32 through gemm_slot, with the threads in use
  Rate product_one_blas;          // the same, cblas_sgemm on this thread; 0 for a GPU
  std::vector<Bandwidth> memory;  // GB/s, f32, by rising size

  // GB/s for work on so many bytes: of the smallest arrays measured that are at least as large, so that what
  // fits a cache is compared with that cache.
  double bandwidth_for(double bytes) const;
  // The least seconds for so many operations and bytes.
  double least_seconds(double flops, double bytes) const;
};

// A square product, made once and run between other measurements: of f32, or on a GPU of bf16 as well.
class ProductProbe {
 public:
  explicit ProductProbe(std::int64_t size, Device device = kCpu, Dtype dtype = Dtype::f32);
  ~ProductProbe();
  // GFLOP/s of one product through gemm_slot, with the threads in use; on a GPU of some in a row.
  double run() const;
  // The same by cblas_sgemm on the calling thread, for a probe on the CPU.
  double run_blas() const;

 private:
  struct Operands;
  std::unique_ptr<Operands> operands_;
};

struct CeilingSizes {
  std::int64_t product = 2048;                             // rows of the square product
  std::vector<std::int64_t> bytes_per_thread = {1 << 20};  // inside a core's own second-level cache
  std::vector<std::int64_t> bytes = {32 << 20,
                                     512 << 20};  // shared cache, as the ops' benchmarks; main memory
};

// Measures for about `seconds` in all.
// errors: OutOfMemoryError; ValueError for sizes below 1.
Ceilings measure_ceilings(double seconds = 3, const CeilingSizes& sizes = {}, Device device = kCpu);

std::string to_text(const Ceilings& ceilings);
nlohmann::json to_json(const Ceilings& ceilings);

}  // namespace eddy
