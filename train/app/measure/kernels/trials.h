// What a GPU's kernels must show before a run takes them, in the process that calls. prove.h runs it in processes of
// their own.
//
//   op/NAME              every sample of the op in f32 by the plain kernels, against the CPU's f64
//   attention=mma, ...   the kernel of that choice (set_gpu_kernels) against the plain one: results and gradients
//
// Each must also give the same bits twice. A choice is timed beside the plain kernel.
#pragma once

#include <string>
#include <vector>

#include "tensor/base/device.h"

namespace eddy::app {

// What a kernel takes beside the plain one, forward and backward.
struct TrialTime {
  std::string what;  // "attention", "short_attention", or a model or product
  double ms = 0, plain_ms = 0;
};

struct KernelTrial {
  std::string name;
  std::string problem;   // what is wrong; empty: it passed, or
  std::string left_out;  // why this GPU does not run it
  std::vector<TrialTime> times{};

  bool passed() const { return problem.empty() && left_out.empty(); }
};

// Returns the names of all trials: first the ops, then the choices.
std::vector<std::string> kernel_trials();

// How large the calls are that are timed, and for how long each is repeated. The emulated GPU takes small ones, once.
struct TrialSizes {
  bool small = false;
  double seconds = 0.1;
};

// Runs a trial on an open GPU. What a kernel throws is the trial's problem, and `lost` is set where the GPU then cannot
// be used further in this process. Leaves the choice of kernels as it was at the start of the program.
// errors: ValueError for an unknown name.
KernelTrial run_kernel_trial(const std::string& name, Device gpu, const TrialSizes& sizes, bool* lost);

// The parts of it: return what is wrong, or "". `times` gets the times.
std::string try_op(const std::string& op, Device gpu);
std::string try_attention(const std::string& choice, Device gpu, const TrialSizes& sizes,
                          std::vector<TrialTime>& times);
std::string try_recurrence(const std::string& choice, Device gpu, const TrialSizes& sizes,
                           std::vector<TrialTime>& times);
std::string try_products(const std::string& choice, Device gpu, const TrialSizes& sizes,
                         std::vector<TrialTime>& times);

}  // namespace eddy::app
