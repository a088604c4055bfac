// The list of trials, and those of ops.
#include "train/app/measure/kernels/trials.h"

#include <algorithm>

#include "ops/backends.h"
#include "ops/core/op_check.h"
#include "ops/core/op_spec.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy::app {
using namespace detail;
namespace {

using namespace spec_check;

constexpr std::string_view kOp = "op/";

struct ChoiceTrial {
  std::string name;
  TrialOfChoice* run;
};

// One for each kernel that may stand in the place of the plain one.
std::vector<ChoiceTrial> choice_trials() {
  constexpr TrialOfChoice* kRuns[] = {
#define EDDY_RUN(name, part_of, kernels, measured, timed, trial) trial,
      EDDY_KERNEL_CHOICES(EDDY_RUN)
#undef EDDY_RUN
  };
  std::vector<ChoiceTrial> trials;
  for (std::size_t i = 0; i < std::size(kKernelRecords); ++i) {
    const KernelRecord& record = kKernelRecords[i];
    if (record.is_part()) continue;
    for (const std::string& kernel : kernels_in(record.kernels))
      if (kernel != "plain") trials.push_back({fmt::format("{}={}", record.name, kernel), kRuns[i]});
  }
  return trials;
}

Tensors on_cpu(Tensors tensors) {
  for (Tensor& x : tensors)
    if (x.defined()) x = raw::to_device(x, kCpu);
  return tensors;
}

// "" or what is wrong with a sample. Tolerances are those of the op's spec, as in the tests.
std::string try_sample(const OpSpec& spec, const OpSample& sample, Device gpu) {
  const std::string name = spec.name + "/" + sample.label;
  const Outcome reference = evaluate(spec, sample.inputs);
  const Tensors want = spec.reference ? spec.reference(sample.inputs) : reference.results;
  const Tensors inputs = inputs_on(sample.inputs, gpu);
  EvaluateOptions options;
  for (const Tensor& dy : cotangents(reference.results))
    options.dys.push_back(raw::to_device(raw::cast(dy, Dtype::f32), gpu));
  const auto on_gpu = [&] {
    const Outcome outcome = evaluate(spec, inputs, options);
    return Outcome{on_cpu(outcome.results), on_cpu(outcome.gradients)};
  };
  const Outcome got = on_gpu();
  const double eps = epsilon(Dtype::f32);
  for (std::size_t i = 0; i < want.size(); ++i)
    if (std::string wrong =
            difference(fmt::format("{} result {}", name, i), got.results[i], want[i], spec.roundings, eps);
        !wrong.empty())
      return wrong;
  if (sample.gradcheck)
    if (std::string wrong =
            gradient_difference(name, got.gradients, reference.gradients, gradient_roundings(spec), eps);
        !wrong.empty())
      return wrong;
  return bit_difference(name + " again", on_gpu(), got);
}

}  // namespace

std::vector<std::string> kernel_trials() {
  std::vector<std::string> names;
  for (const OpSpec& spec : op_specs()) names.push_back(std::string(kOp) + spec.name);
  for (const ChoiceTrial& trial : choice_trials()) names.push_back(trial.name);
  return names;
}

std::string try_op(const std::string& op, Device gpu, const std::string& choice) {
  for (const OpSpec& spec : op_specs()) {
    if (spec.name != op) continue;
    set_gpu_kernels(choice);
    for (const OpSample& sample : spec.samples)
      if (std::string wrong = try_sample(spec, sample, gpu); !wrong.empty()) return wrong;
    return "";
  }
  fail<ValueError>("kernels: there is no op '{}' to try", op);
}

KernelTrial run_kernel_trial(const std::string& name, Device gpu, const TrialSizes& sizes, bool* lost) {
  KernelTrial trial;
  trial.name = name;
  const std::vector<ChoiceTrial> choices = choice_trials();
  const auto choice = std::find_if(choices.begin(), choices.end(),
                                   [&](const ChoiceTrial& known) { return known.name == name; });
  const bool is_choice = choice != choices.end();
  if (!is_choice && !name.starts_with(kOp)) fail<ValueError>("kernels: there is no trial '{}'", name);
  try {
    trial.problem =
        is_choice ? choice->run(name, gpu, sizes, trial.times) : try_op(name.substr(kOp.size()), gpu);
    if (is_choice && trial.problem.empty())
      for (const std::string& warning : take_warnings()) trial.left_out = warning;
  } catch (const DeviceError& error) {
    trial.problem = error.what();
    *lost = true;
  } catch (const Error& error) {
    trial.problem = error.what();
  }
  if (!trial.left_out.empty()) trial.times.clear();
  set_gpu_kernels("auto");
  return trial;
}

}  // namespace eddy::app
