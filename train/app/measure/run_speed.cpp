// Steps of the run's own batch.
#include "train/app/measure/run_speed.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "train/app/measure/step_trial.h"
#include "train/eval/evaluate.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kFewestSteps = 3;

// Returns the seconds of one batch of an evaluation, the second of two.
double time_evaluation(const PlannedRun& run, const Model& model) {
  const NoGrad no_grad;
  EvalPlan plan;
  plan.carry_state = run.carries_state;
  plan.capture = false;
  Recorder recorder(model.params(), eval_recorder(plan));
  CarriedState carried;
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {
    const Clock::time_point start = Clock::now();
    const BatchLosses losses = evaluate_batch(model, continued(run.batch), carried, plan, recorder);
    static_cast<void>(raw::to_device(losses.losses, kCpu));  // waits for it
    seconds = seconds_between(start);
  }
  return seconds;
}

}  // namespace

RunSpeed measure_run_speed(const PlannedRun& run, double seconds,
                           const std::function<void(double)>& progress) {
  StepTrial trial(steps_of_run(run), run.placement);

  RunSpeed speed;
  speed.tokens = run.batch.tokens.elements() * run.config.train.accumulate;
  const std::int64_t sequence = trial.sequence(), tail = std::max<std::int64_t>(1, run.batch.tail);
  speed.flops_per_token = 3.0 * forward_cost(run.config.model, sequence, run.carries_state, tail).flops /
                          static_cast<double>(sequence);
  const auto timed_step = [&trial] {
    const Clock::time_point start = Clock::now();
    static_cast<void>(trial.step());
    return seconds_between(start);
  };
  // The first step also takes the memory of all others from the system.
  const bool is_long = timed_step() > seconds;
  if (!is_long) trial.warm_up();
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  do {
    times.push_back(timed_step());
    if (progress) progress(std::min(1.0, seconds_between(start) / std::max(seconds, 1e-3)));
  } while (!is_long && (std::ssize(times) < kFewestSteps || seconds_between(start) < seconds));
  speed.step = timing_of(std::move(times));
  if (run.config.train.eval_every > 0) speed.evaluation_seconds = time_evaluation(run, trial.model());
  return speed;
}

RunTime time_of_run(const PlannedRun& run, const Task& task, const RunSpeed& speed) {
  const TrainConfig& train = run.config.train;
  const auto steps = static_cast<double>(train.steps);
  RunTime time{.training = steps * speed.step.median};
  if (train.eval_every == 0) return time;
  const double each_step = static_cast<double>(run.batch.tokens.elements());
  const DataConfig& data = run.config.data;
  // Of a text that is cut by the configuration.
  const double whole = static_cast<double>(task.epoch_tokens()) * (1 - data.split - data.test) / data.split /
                       std::max(each_step, 1.0);
  const bool knows_whole = task_reads(data, "split") && task.epoch_tokens() > 0;
  const auto sample = static_cast<double>(eval_sample_batches(train));
  double batches = train.eval_batches > 0    ? static_cast<double>(train.eval_batches)
                   : train.eval_batches == 0 ? whole
                   : knows_whole             ? std::min(sample, whole)
                                             : sample;
  const double rounds = 1 + std::floor(steps / static_cast<double>(train.eval_every));
  // The cost of clearing the state is measured with and without it.
  if (run.carries_state) batches += 2 * std::min(batches, static_cast<double>(train.state_gain_batches));
  time.evaluating = (rounds * batches + (train.eval_batches < 0 ? whole : 0)) * speed.evaluation_seconds;
  time.whole = knows_whole || train.eval_batches != 0;
  return time;
}

}  // namespace eddy::app
