// The training step: that of examples/05_copy_a_line.cpp, over several batches and with a recurrent state.
//
//   for each batch    forward, loss, backward: gradients add up; the state goes on to the next batch, detached
//   then              one call of the optimizer clips the gradient's norm and updates the parameters
//
// The parts of a batch (train.micro_batches) and the ranks that share them are the business of `gradients`
// (reducer.h): in a plain run its calls do nothing.
//
// `enqueue_step` never waits for the device, which itself skips an update that is not finite: so a recorder
// (recorder.h) can capture it and replay it with other inputs (step_inputs.h). What came out is read by a second
// call, `collect_step` (collect_step.h).
#include "train/step/train_step.h"

#include <utility>

#include "ops/pointwise/pointwise.h"
#include "tensor/transfer.h"
#include "train/step/collect_step.h"
#include "train/step/reducer.h"
#include "train/step/step_inputs.h"

namespace eddy::training {
namespace {

// Bytes of a state that is copied for each step so that the host can be ahead. At 4 TB/s that takes 16 us, a fraction
// of what the GPU waits otherwise. An estimate.
constexpr std::int64_t kMostCopied = std::int64_t{32} << 20;

// The gradient of the step's loss with respect to a micro-batch's loss l: share + (l - l). That is exactly the
// share for a finite l, and NaN for any other; a NaN makes the gradient's norm NaN.
Tensor share_if_finite(const Tensor& loss, const Tensor& share) {
  const NoGrad no_grad;
  const Tensor value = raw::alias(loss);
  return (share.dtype() == loss.dtype() ? share : raw::cast(share, loss.dtype())) + (value - value);
}

// `memory` is that of the steps' numbers, or undefined.
EnqueuedStep enqueue_step(Model& model, Optimizer& optimizer, const StepInputs& inputs,
                          const CarriedState& before, const Tensor& memory) {
  const StepOptions& options = inputs.options;
  EnqueuedStep step{.numbers = {inputs.micro_batches.size(), model.params().values().device(), memory}};
  step.before = step.after = before;
  GradientReducer gradients(model.params(), options.micro_batches, inputs.scored, options.ranks,
                            options.buckets);
  std::vector<CarriedState> states = inputs.split(before, model);

  optimizer.zero_gradients();
  for (std::size_t i = 0; i < inputs.micro_batches.size(); ++i) {
    step.stopped = inputs.stops_before(i);
    if (step.stopped) return step;
    const Batch& batch = inputs.micro_batches[i];
    CarriedState& state = states[i % inputs.local];

    gradients.begin();
    const ForwardOutput output = model.forward(inputs.forward(i, state, model));
    if (batch.scored > 0) {
      const Tensor loss = output.classifier.loss(batch.targets, kNotScored);
      step.numbers.store_loss(i, loss);
      step.graph = graph_stats();
      backward(loss, share_if_finite(loss, inputs.shares[i]));
    }
    if (options.carry_state) state.update(output.state, batch);  // values go on, gradients stop
    gradients.end();
  }
  if (options.carry_state) step.after = inputs.merge(states, model);
  if (inputs.all_scored() == 0) return step;

  gradients.finish();
  step.numbers.store_norm(gradients.update(optimizer, inputs.scalars, step.numbers.norm_before()));
  step.gradient_norms = gradients.norms();
  return step;
}

// Enqueues a step that begins from `carried`, which stays as it is. `inputs` become tensors on the device.
EnqueuedStep begin_step(Model& model, Optimizer& optimizer, StepInputs& inputs,
                        const std::vector<Batch>& batches, const CarriedState& carried, const Tensor& memory,
                        Recorder* recorder) {
  Recorder uncaptured(model.params(), {.wanted = false});
  State first;
  if (inputs.options.carry_state && !batches.empty()) first = carried.before(batches.front());
  return (recorder != nullptr ? *recorder : uncaptured)
      .run(inputs.signature(), inputs.tensors(), first, [&](State& state) {
        EnqueuedStep work = enqueue_step(model, optimizer, inputs, {state, carried.rows}, memory);
        state = work.after.state;
        return work;
      });
}

}  // namespace

StepResult train_step(Model& model, Optimizer& optimizer, const std::vector<Batch>& batches,
                      CarriedState& carried, const StepOptions& options, Recorder* recorder) {
  StepInputs inputs(batches, options, optimizer, model.params().values().dtype());
  const EnqueuedStep step = begin_step(model, optimizer, inputs, batches, carried, {}, recorder);
  return collect_step(model, optimizer, inputs, step, carried);
}

// A step that was launched. It can be computed again from what is here.
struct StepQueue::Step {
  std::vector<Batch> batches;
  StepOptions options;
  CarriedState before;  // where the step read it, or a copy where another step follows
  std::optional<StepInputs> inputs{};
  std::optional<EnqueuedStep> work{};
  std::unique_ptr<HostCopy> numbers{};
  std::optional<StepResult> result{};  // of a step that was whole when its launch returned
  bool is_counted = false;             // by the optimizer, before its norm is known
};

StepQueue::StepQueue(Model& model, Recorder& recorder, std::int64_t batches, std::int64_t micro_batches)
    : model_(model), recorder_(recorder) {
  const Device device = model.params().values().device();
  if (device.type == DeviceType::cuda)
    numbers_ = StepNumbers::make_memory(static_cast<std::size_t>(batches * micro_batches), device);
}

StepQueue::~StepQueue() = default;

bool StepQueue::is_late(const StepOptions& options) const {
  return numbers_.defined() && options.ranks == nullptr;
}

bool StepQueue::launch(Optimizer& optimizer, const std::vector<Batch>& batches, CarriedState& carried,
                       const StepOptions& options) {
  auto step = std::make_unique<Step>(Step{batches, options, carried});
  if (!is_late(options)) {
    step->result = train_step(model_, optimizer, batches, carried, options, &recorder_);
    if (step->result->stopped) return false;
    steps_.push_back(std::move(step));
    return true;
  }
  if (!steps_.empty()) {
    Step& last = *steps_.back();
    // Its numbers are those of the next step if it is finite; else neither step counts.
    if (!last.is_counted && last.inputs->all_scored() > 0) {
      optimizer.count_step();
      last.is_counted = true;
    }
    State kept;
    for (const auto& [name, tensor] : last.work->before.state) kept.set(name, raw::copy(tensor));
    last.before.state = std::move(kept);
  }
  step->inputs.emplace(batches, options, optimizer, model_.params().values().dtype());
  step->work = begin_step(model_, optimizer, *step->inputs, batches, carried, numbers_, &recorder_);
  if (step->work->stopped) return false;
  if (idle_.empty()) idle_.push_back(transfer(numbers_.device()).make_host_copy());
  step->numbers = std::move(idle_.back());
  idle_.pop_back();
  step->numbers->start(numbers_);
  step->before.state = step->work->before.state;
  if (options.carry_state) carried = step->work->after;
  steps_.push_back(std::move(step));
  return true;
}

bool StepQueue::may_run_ahead() const {
  if (steps_.size() != 1 || !is_late(steps_.back()->options)) return false;
  return steps_.back()->work->before.state.bytes() <= kMostCopied;
}

StepResult StepQueue::collect(Optimizer& optimizer, CarriedState& carried) {
  Step& step = *steps_.front();
  StepResult result;
  if (step.result) {
    result = *step.result;
  } else {
    result = result_of(*step.inputs, *step.work, step.work->numbers.values_in(step.numbers->wait()));
    if (result.finite && !step.is_counted && step.inputs->all_scored() > 0) optimizer.count_step();
    if (!result.finite) {
      // The step behind it changed nothing on the device, and is forgotten.
      for (const std::unique_ptr<Step>& other : steps_)
        if (std::exchange(other->is_counted, false)) optimizer.uncount_step();
      while (steps_.size() > 1) drop(steps_.size() - 1);
      raw::fill(numbers_, 0);
      carried = step.before;
      StepInputs inputs(step.batches, step.options, optimizer, model_.params().values().dtype());
      const EnqueuedStep again =
          begin_step(model_, optimizer, inputs, step.batches, carried, numbers_, &recorder_);
      result = collect_step(model_, optimizer, inputs, again, carried);
      raw::fill(numbers_, 0);
    }
  }
  drop(0);
  return result;
}

void StepQueue::drop(std::size_t i) {
  if (steps_[i]->numbers != nullptr) idle_.push_back(std::move(steps_[i]->numbers));
  steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(i));
}

std::vector<std::int64_t> scored_targets(const std::vector<Batch>& batches, std::int64_t micro_batches) {
  std::vector<std::int64_t> scored;
  for (const Batch& batch : batches)
    for (std::int64_t part = 0; part < micro_batches; ++part)
      scored.push_back(micro_batches == 1 ? batch.scored : part_of_batch(batch, part, micro_batches).scored);
  return scored;
}

}  // namespace eddy::training
