// `eddy bench step`: a whole training step (forward, loss, backward, clipping, AdamW) on random tokens, set
// against the time that its multiply-adds would take at the rate of one large product. The products are
// measured between the steps, on the same threads: on a shared machine only numbers of the same moment can be
// compared. A GPU replays steps from a graph, as in training. With a profile, further steps show where the
// time goes; these are never captured, so that each op can be told from the next. Then the step's products, and its
// attention, are timed alone (alone.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "train/app/measure/alone.h"
#include "train/app/measure/bench.h"
#include "train/app/measure/ceilings.h"
#include "train/app/measure/measurement.h"
#include "train/app/measure/profile.h"
#include "train/app/measure/step_trial.h"

namespace eddy::app {

struct StepBenchOptions : StepTrialOptions {
  std::int64_t steps = 0;  // timed steps; 0: as many as fit `seconds`, at least 3
  double seconds = 20;
  bool profile =
      false;  // also profile, for as many steps or as much time again, and time what is multiplied alone
  std::int64_t product_size = 0;          // rows of the product timed between steps; 0: 1536, on a GPU 8192
  std::int64_t memory_bytes = 512 << 20;  // of the largest copies that measure memory for a profile
  std::string device = value_name(training::DeviceChoice::cpu);
  std::string precision = value_name(training::Precision::f32);  // tf32 on a GPU alone, f64 on the CPU alone
};

struct StepBench {
  std::string model;
  std::int64_t parameters = 0, batch = 0, sequence = 0;
  int threads = 1;
  double dropout = 0;
  std::string recompute = value_name(Recompute::none);
  std::string device, precision;
  Timing step;                   // units: seconds
  double loss = 0;               // of the last step
  double flops_per_token = 0;    // 2 operations per multiply-add; backward counts twice forward
  Rate product;                  // GFLOP/s, measured between the steps
  Rate instruction;              // the same of the CPU's instruction for products alone; 0 on a GPU
  std::int64_t peak_bytes = 0;   // of live memory on the device during the steps, without the product's
  std::int64_t graph_nodes = 0;  // nodes of the tape after the forward pass
  std::int64_t saved_bytes = 0;
  bool captured = false;                     // the steps were replayed from a graph
  std::string message{};                     // why they were not, although options.capture asked for it
  std::optional<GpuKernels> gpu_kernels{};   // the kernels chosen on a GPU
  bool tf32 = false;                         // whether a GPU's products of f32 round their factors to TF32
  std::vector<std::string> warnings{};       // where other kernels ran instead (ops/core/warnings.h)
  std::vector<ProfileRow> by_op, by_module;  // with options.profile
  std::int64_t profiled_steps = 0;
  StepAlone alone;  // the same

  double tokens() const { return static_cast<double>(batch * sequence); }
  // Returns the seconds that the step's products take at the median and at the best rate of the product.
  double floor_median() const { return flops_per_token * tokens() / product.median * 1e-9; }
  double floor_best() const { return flops_per_token * tokens() / product.best * 1e-9; }
  // The same for a part of them.
  double floor_median(const CallsAlone& part) const { return part.flops / product.median * 1e-9; }
  double floor_best(const CallsAlone& part) const { return part.flops / product.best * 1e-9; }
};

// Times steps after some warm-up; on a GPU a step ends when the GPU has finished it.
// errors: ConfigError for the model's sizes and a precision that the device does not have; DeviceError when
// there is no GPU to use; ValueError for a batch, sequence or number of steps out of range; ShapeError for a
// sequence that the model does not support; NonFiniteError when a loss is not finite; OutOfMemoryError.
StepBench bench_step(const StepBenchOptions& options);

Measurement measurement_of(const StepBench& bench);

}  // namespace eddy::app
