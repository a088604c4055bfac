// What a GPU's kernels must show before a run takes them, in the process that calls. prove.h runs it in processes of
// their own.
//
//   op/NAME              every sample of the op in f32 by the plain kernels, against the CPU's f64
//   attention=mma, ...   a kernel of ops/core/kernel_choices.h: its results and gradients, by the trial of the record
//
// Each must also give the same bits twice. A choice is timed beside the plain kernel.
#pragma once

#include <string>
#include <vector>

#include "ops/core/kernel_choices.h"
#include "tensor/base/device.h"

namespace eddy::app {

// What a kernel takes beside the plain one, forward and backward.
struct TrialTime {
  std::string
      what;  // the choice that it counts for, "short_attention"; or a model, product or op: it counts for all
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

// The parts of it: return what is wrong, or "". Samples of an op, by the kernels of a choice:
std::string try_op(const std::string& op, Device gpu, const std::string& choice = "plain");

// The trial of a choice, "attention=mma"; `times` gets the times, or none where only a run's own steps can tell. It
// leaves a warning where the GPU or the kernel does not take a call that is timed.
using TrialOfChoice = std::string(const std::string& choice, Device gpu, const TrialSizes& sizes,
                                  std::vector<TrialTime>& times);
// Those that the records name are in choice_trials.cpp.
#define EDDY_DECLARE(name, part_of, kernels, measured, timed, trial) TrialOfChoice trial;
EDDY_KERNEL_CHOICES(EDDY_DECLARE)
#undef EDDY_DECLARE
// The samples of the ops of the choice's name, "softmax" and "softmax_..." for "softmax=other", then their benchmarks.
// errors: ValueError if there is no such op.
TrialOfChoice try_samples;

}  // namespace eddy::app
