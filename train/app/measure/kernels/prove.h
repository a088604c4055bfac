// Tries the kernels of this build on the GPU that is here, each where a fault or an endless loop costs that kernel
// alone, and takes what the trials say.
//
// Ops are tried one after the other in a process; where it dies, or is silent for too long, the op that it was at has
// failed, and another process goes on behind it. A choice of kernels has a process of its own.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/app/measure/kernels/kernel_verdict.h"

namespace eddy::app {

struct ProveOptions {
  // Starts a process that calls serve_trials with the names that follow.
  std::vector<std::string> command;
  std::string cache;      // where verdicts are kept; "" where there is no folder
  double seconds = 20;    // the longest time of a trial
  bool again = false;     // although there is a verdict
  bool uncached = false;  // without a folder too: at every start. Otherwise plain kernels are taken there
  std::vector<std::string> trials{};                      // empty: all
  std::function<void(const std::string&)> say = nullptr;  // gets lines on the progress
};

// Returns the verdict on the GPU, which is read or made; nothing without a GPU, or without a cache. Of two processes
// that begin at once one makes it and the other waits.
// errors: DeviceError where the GPU cannot be opened; IoError where no process can be started, or one was interrupted.
std::optional<KernelVerdict> prove_kernels(const ProveOptions& options);

// The verdict that is kept, without any trial.
std::optional<KernelVerdict> kept_verdict(const std::string& cache);

// Takes a verdict: "auto" stands for its kernels from here on, those that failed are refused, with a warning each.
// errors: DeviceError for an op that failed: nothing can stand in its place.
void use_verdict(const KernelVerdict& verdict);

// Before a GPU is opened for the program: unless every choice is made by set_gpu_kernels, proves and uses the verdict.
// Where there is none, takes plain kernels and says so.
// errors: as prove_kernels and use_verdict.
void choose_proven_kernels(const ProveOptions& options);

// The other side: runs trials on the GPU and writes what happens to standard output, a line of JSON each. Returns the
// exit status.
int serve_trials(const std::vector<std::string>& names, const TrialSizes& sizes);

}  // namespace eddy::app
