// Takes the kernels that a run's own steps are the fastest with. The trials (trials.h) say which kernels are right, and
// time them at sizes of their own; which of them is the fastest depends on the model and its batch.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "train/app/measure/kernels/prove.h"
#include "train/plan/memory.h"

namespace eddy::app {

// The seconds of a step with a choice of kernels, as set_automatic_kernels takes it; nothing if it cannot be run.
using StepSeconds = std::function<std::optional<double>(const std::string& kernels)>;

// Returns the kernels with which a step is the fastest: those of the verdict, and for one op after the other what
// passed its trials and is worth it (kWorthIt). Ops that set_gpu_kernels chose a kernel for are left alone.
std::string fastest_kernels(const KernelVerdict& verdict, const StepSeconds& seconds_of);

// Before a new run's model is made: times steps of the run and takes their fastest kernels and, with algorithms=timed,
// the fastest algorithm of each of their products (ops/core/product_algorithms.h). Both are kept beside the verdict for
// this GPU and this build, the kernels for such steps, the algorithms by shape.
// Does nothing where there is no verdict or no choice.
// errors: as prove_kernels.
void choose_kernels_of_run(const training::PlannedRun& run, const ProveOptions& options);

// Returns a line that says what bf16 would bring to a run in f32 on a GPU: with the milliseconds of its steps in both,
// where kernels are tried here. They are timed once, and kept beside the kernels of such steps.
// errors: as prove_kernels.
std::string bf16_text(const training::PlannedRun& run, const ProveOptions& options);
// The same without a run's steps: what an H200 has measured.
std::string bf16_text();

}  // namespace eddy::app
