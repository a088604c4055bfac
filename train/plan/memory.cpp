// A short run without values.
#include "train/plan/memory.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "ops/cost/counting.h"
#include "ops/cost/kernel_observer.h"
#include "tensor/base/error.h"
#include "tensor/memory/memory_limit.h"
#include "tensor/system/memory.h"
#include "tensor/threads/thread_pool.h"
#include "train/eval/evaluate.h"
#include "train/step/train_step.h"

namespace eddy::training {
namespace {

// The first from a cold start, the others from a state; then no step needs other memory than the one before.
constexpr std::int64_t kSteps = 3;

// The steps and evaluations of a run, which hold what they leave behind.
class CountedRun {
 public:
  // Notes in `plan` what it has counted so far.
  CountedRun(const PlannedRun& run, Device device, MemoryPlan& plan)
      : train_(run.config.train),
        carries_(run.carries_state),
        memory_(allocator(device)),
        live_before_(memory_.stats().live_bytes),
        batch_(run.batch),
        validation_rows_(run.validation_rows),
        plan_(plan) {
    const Dtype dtype = run.placement.dtype;
    plan_.parameters = count_parameters(run.config.model).count();
    model_ = make_model(run.config.model, dtype, device, run.placement.matmul);
    plan_.values = plan_.gradients = model_->params().values().bytes();
    if (dtype == Dtype::bf16) plan_.values += plan_.values / 2;  // the rounded copy
    count_initialization();
    optimizer_ = make_optimizer(model_->params(), train_);
    for (const auto& [name, tensor] : optimizer_->save()) plan_.optimizer += tensor.bytes();
  }

  void run() {
    const bool evaluates = train_.eval_every > 0;
    if (evaluates && train_.minutes == 0) evaluate();
    for (std::int64_t step = 0; step < kSteps; ++step) this->step(step);
    plan_.state = carried_.state.bytes();
    plan_.activations =
        std::max<std::int64_t>(0, memory_.stats().peak_bytes - live_before_ - plan_.of_model() - plan_.state);
    if (evaluates) evaluate();
  }

 private:
  // The memory in which ParamStore::initialize makes values, one parameter at a time.
  void count_initialization() const {
    for (const Parameter& parameter : model_->params().parameters())
      static_cast<void>(raw::cast(Tensor::empty(parameter.shape, Dtype::f64, parameter.value.device()),
                                  parameter.value.dtype()));
  }
  // The next batch of the data: only the first begins with a new state in all rows.
  Batch next(std::int64_t number) const {
    Batch batch = number > 0 ? continued(batch_) : batch_;
    if (model_->needs_equal_starts()) batch.start = Tensor();
    return batch;
  }
  void step(std::int64_t number) {
    const std::vector<Batch> batches(static_cast<std::size_t>(std::min<std::int64_t>(train_.accumulate, 2)),
                                     next(number));
    StepOptions options;
    options.learning_rate = train_.learning_rate;
    options.step = number;
    options.carry_state = carries_;
    options.micro_batches = train_.micro_batches;
    options.recompute = recompute_named(train_.recompute);
    static_cast<void>(train_step(*model_, *optimizer_, batches, carried_, options));
  }
  // The batches of an evaluation: full ones, and a smaller one at its end, whose blocks have sizes of their own.
  void evaluate() {
    const std::int64_t batch = batch_.tokens.dim(0), rows = validation_rows_ > 0 ? validation_rows_ : batch;
    evaluate(std::min(rows, batch));
    if (rows > batch && rows % batch != 0) evaluate(rows % batch);
  }
  // Evaluates so many rows, in the parts that EvalParts (eval_parts.h) makes of them.
  void evaluate(std::int64_t rows) {
    const NoGrad no_grad;
    EvalPlan plan;
    plan.carry_state = carries_;
    plan.capture = false;
    Recorder recorder(model_->params(), eval_recorder(plan));
    const std::int64_t parts = std::gcd(rows, train_.micro_batches);
    std::vector<CarriedState> carried(static_cast<std::size_t>(parts));
    for (std::int64_t number = 0; number < (carries_ ? 2 : 1); ++number) {
      const Batch batch = first_rows(next(number), rows);
      for (std::int64_t part = 0; part < parts; ++part)
        static_cast<void>(evaluate_batch(*model_, parts == 1 ? batch : part_of_batch(batch, part, parts),
                                         carried[static_cast<std::size_t>(part)], plan, recorder));
    }
  }

  const TrainConfig& train_;
  const bool carries_;
  Allocator& memory_;
  const std::int64_t live_before_;
  const Batch& batch_;
  const std::int64_t validation_rows_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  CarriedState carried_;
  MemoryPlan& plan_;
};

// Working memory of OpenBLAS that products of a model touch, for each thread; as measured for the table in
// train/plan/README.md.
constexpr std::int64_t kProductBytes = std::int64_t{2} << 20;

}  // namespace

PlannedRun planned_run(const RunConfig& config, const DevicePrecision& placement, Task& task,
                       std::int64_t before_text) {
  const std::int64_t text = std::max<std::int64_t>(0, resident_bytes() - before_text);
  PlannedRun run{config, placement, task.longest_batch(), task.carries_state(), text};
  run.shorter_rows = task.shorter_rows();
  if (config.train.eval_every > 0 && config.train.eval_batches <= 0)
    run.validation_rows = task.validation_rows();
  return run;
}

Batch continued(const Batch& batch) {
  Batch later = batch;
  later.begin = RowsBegin::none;
  later.start = Tensor();
  return later;
}

Batch first_rows(const Batch& batch, std::int64_t rows) {
  if (rows == batch.tokens.dim(0)) return batch;
  Batch part = batch;
  for (Tensor* const x : {&part.tokens, &part.targets, &part.start})
    if (x->defined()) *x = raw::copy(raw::narrow(*x, 0, 0, rows));
  return part;
}

Batch first_tokens(const Batch& batch, std::int64_t tokens) {
  Batch part = batch;
  for (Tensor* const x : {&part.tokens, &part.targets})  // a model with a readout has fewer targets
    if (x->dim(1) > tokens) *x = raw::copy(raw::narrow(*x, 1, 0, tokens));
  part.tail = std::min(batch.tail, tokens);
  return part;
}

namespace {

// Counts the run as it is.
MemoryPlan counted_plan(const PlannedRun& run, std::int64_t most) {
  const Device device = counting_device(run.placement.device.type);
  Allocator& memory = allocator(device);
  memory.trim();
  memory.reset_peak();
  const std::int64_t before = memory.stats().reserved_bytes;  // of tensors of others
  MemoryPlan plan;
  std::int64_t reserved = 0;
  const std::int64_t reading = resident_peak_bytes();
  const std::int64_t resident = resident_peak_of([&] {
    const MemoryLimit limit(memory, most);
    try {
      CountedRun counted(run, device, plan);
      counted.run();
      reserved = memory.stats().reserved_bytes - before;
    } catch (const OutOfMemoryError&) {
      plan.complete = false;
    }
  });
  plan.reading = reading;
  plan.text = run.text;
  plan.program = std::max<std::int64_t>(0, resident - plan.text) + kProductBytes * thread_count();
  plan.on_gpu = run.placement.device != kCpu;
  if (!plan.complete) {
    plan.peak = most;
    return plan;
  }
  if (plan.on_gpu && value_is(run.config.train.capture, StepCapture::automatic)) {
    // A captured step has memory of its own beside that of the steps before it.
    plan.peak = plan.of_model() + 2 * (reserved - plan.of_model());
  } else {
    plan.peak = plan.on_gpu ? reserved : std::max(reserved + plan.text + plan.program, plan.reading);
  }
  // What is live is counted in whole blocks, whose ends nobody writes.
  const std::int64_t of_steps =
      std::max<std::int64_t>(0, (plan.on_gpu ? plan.peak : reserved) - plan.of_model() - plan.state);
  plan.activations = std::min(plan.activations, of_steps);
  plan.kept = of_steps - plan.activations;
  return plan;
}

// Each layer beyond a few adds as much as the one before it. So a run with more than kMostLayers is counted with
// kFewLayers and with twice as many, and what those add is multiplied: the tape of 32,768 layers has ten million nodes,
// which take minutes to count.
constexpr std::int64_t kMostLayers = 256, kFewLayers = 32;

// A row of more than kMostTokens, each of which adds kernels of its own, is counted with at most kFewTokens and with
// twice as many: the tape of 200,000 tokens of an LSTM takes half a minute, and each value of train.recompute again.
constexpr std::int64_t kMostTokens = 8192, kFewTokens = 4096;

// How many kernels a forward pass calls, and their work.
class CountKernels final : public KernelObserver {
 public:
  void kernel_begins() override {}
  void kernel_done(const char*, const Cost& cost) override {
    ++kernels_;
    work_ += cost;
  }
  std::int64_t kernels() const { return kernels_; }
  const Cost& work() const { return work_; }

 private:
  std::int64_t kernels_ = 0;
  Cost work_;
};

// Whether a row of `tokens` and one of twice as many are as far apart in operations and bytes as that one and one of
// three times as many, and each token has kernels of its own: then they are so in memory too.
bool each_token_adds(const PlannedRun& run, std::int64_t tokens) {
  const Device device = counting_device(run.placement.device.type);
  const std::unique_ptr<Model> model =
      make_model(run.config.model, run.placement.dtype, device, run.placement.matmul);
  const NoGrad no_grad;
  const auto counted = [&](std::int64_t times) {
    const ForwardInput input = forward_input(first_tokens(run.batch, times * tokens), device);
    CountKernels count;
    const ObserveKernels observing(count, device);
    static_cast<void>(model->forward(input));
    return count;
  };
  // Where a part that grows with the square adds so little,
  // it adds less than a tenth to rows of a hundred times as many.
  const auto grows_evenly = [](double first, double second, double third) {
    constexpr double kUneven = 1e-3;
    return std::abs((third - second) - (second - first)) <= kUneven * (second - first);
  };
  try {
    const CountKernels one = counted(1), two = counted(2), three = counted(3);
    return two.kernels() - one.kernels() >= tokens &&
           grows_evenly(one.work().flops, two.work().flops, three.work().flops) &&
           grows_evenly(one.work().bytes, two.work().bytes, three.work().bytes);
  } catch (const Error&) {  // the model takes no rows of these lengths
    return false;
  }
}

// Adds to `plan` what further parts take, of which `times` as many are to come as it has more than `few`.
void extend(MemoryPlan& plan, const MemoryPlan& few, double times) {
  for (std::int64_t MemoryPlan::*const number :
       {&MemoryPlan::values, &MemoryPlan::gradients, &MemoryPlan::optimizer, &MemoryPlan::state,
        &MemoryPlan::activations, &MemoryPlan::kept, &MemoryPlan::program})
    plan.*number += static_cast<std::int64_t>(
        static_cast<double>(std::max<std::int64_t>(0, plan.*number - few.*number)) * times);
  const std::int64_t of_tensors = plan.of_model() + plan.state + plan.activations + plan.kept;
  plan.peak = plan.on_gpu ? of_tensors : std::max(of_tensors + plan.text + plan.program, plan.reading);
}

// Counts a run, long rows by their beginnings.
MemoryPlan plan_of_rows(const PlannedRun& run, std::int64_t most) {
  const std::int64_t tokens = run.batch.tokens.dim(1);
  std::int64_t few_tokens =
      tokens;  // of halves of halves, whose blocks fill their size classes as those of the whole do
  while (few_tokens > kFewTokens) few_tokens = (few_tokens + 1) / 2;
  if (const std::int64_t segment = run.config.model.segment; segment > 0 && segment < few_tokens)
    few_tokens = (few_tokens + segment - 1) / segment * segment;
  if (tokens <= kMostTokens || !each_token_adds(run, few_tokens)) return counted_plan(run, most);
  PlannedRun less = run, more = run;
  less.batch = first_tokens(run.batch, few_tokens);
  more.batch = first_tokens(run.batch, 2 * few_tokens);
  return_freed_memory();  // or the nodes of a tape would take the place of those before
  const MemoryPlan few = counted_plan(less, most);
  if (!few.complete) return few;
  return_freed_memory();
  MemoryPlan plan = counted_plan(more, most);
  if (!plan.complete) return plan;
  plan.counted_tokens = 2 * few_tokens;
  extend(plan, few, static_cast<double>(tokens - plan.counted_tokens) / static_cast<double>(few_tokens));
  return plan;
}

MemoryPlan extended_plan(const PlannedRun& run, std::int64_t most) {
  const std::int64_t layers = run.config.model.layers;
  PlannedRun less = run, more = run;
  less.config.model.layers = kFewLayers;
  more.config.model.layers = 2 * kFewLayers;
  try {
    static_cast<void>(make_unallocated_model(less.config.model));
  } catch (const ConfigError&) {  // its keys name a layer that the few lack
    return plan_of_rows(run, most);
  }
  return_freed_memory();
  const MemoryPlan few = plan_of_rows(less, most);
  if (!few.complete) return few;
  return_freed_memory();
  MemoryPlan plan = plan_of_rows(more, most);
  if (!plan.complete) return plan;
  plan.counted_layers = more.config.model.layers;
  plan.parameters = count_parameters(run.config.model).count();
  extend(plan, few, static_cast<double>(layers - plan.counted_layers) / static_cast<double>(kFewLayers));
  return plan;
}

}  // namespace

MemoryPlan plan_memory(const PlannedRun& run, std::int64_t most) {
  return run.config.model.layers > kMostLayers ? extended_plan(run, most) : plan_of_rows(run, most);
}

}  // namespace eddy::training
