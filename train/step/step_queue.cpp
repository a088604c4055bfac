// Launching a step behind another, and going back where the first was not finite.
#include "train/step/step_queue.h"

#include <optional>
#include <utility>

#include "train/step/collect_step.h"
#include "train/step/step_inputs.h"

namespace eddy::training {
namespace {

// Bytes of a state that is copied for each step so that the host can be ahead. At 4 TB/s that takes 16 us, a fraction
// of what the GPU waits otherwise. An estimate.
constexpr std::int64_t kMostCopied = std::int64_t{32} << 20;

}  // namespace

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

}  // namespace eddy::training
