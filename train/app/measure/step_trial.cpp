// Steps on random tokens.
#include "train/app/measure/step_trial.h"

#include <algorithm>

#include "models/optimizer/optimizer.h"
#include "ops/core/capture.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "train/app/measure/measurement.h"
#include "train/plan/memory_verdict.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kSteps = 4;  // of random tokens, used in turns
// Warm-up steps: while the state still grows, each step is of a new kind; then two steps show that a kind
// repeats and one captures it.
constexpr int kMostWarmUp = 12;

std::int64_t rows_of(const ModelConfig& config, std::int64_t sequence, std::int64_t tail) {
  if (value_is(config.readout, Readout::last)) return 1;
  return value_is(config.readout, Readout::tail) ? tail : sequence;
}

// Refuses random steps for which the host has no memory: that of a GPU is not compared.
// One number stands for the tokens of their batch.
void require_memory_of_steps(const StepTrialOptions& options, const DevicePrecision& placement,
                             std::int64_t sequence) {
  if (placement.device != kCpu) return;
  PlannedRun run;
  run.config.model = resolved(options.model);
  TrainConfig& train = run.config.train;
  static_cast<OptimizerOptions&>(train) = options.optimizer;
  train.batch = options.batch;
  train.micro_batches = options.micro_batches;
  train.recompute = value_name(options.recompute);
  train.capture = value_name(options.capture ? StepCapture::automatic : StepCapture::off);
  train.eval_every = 0;
  run.placement = placement;
  run.carries_state = options.carry_state;
  Batch& batch = run.batch;
  batch.tail = std::min(options.tail, sequence);
  const Tensor zero = Tensor::zeros({1, 1}, Dtype::i32);
  batch.tokens = raw::expand(zero, {options.batch, sequence});
  batch.targets = raw::expand(zero, {options.batch, rows_of(run.config.model, sequence, batch.tail)});
  batch.scored = batch.targets.elements();
  run.text = kSteps * (batch.tokens.bytes() + batch.targets.bytes());
  run.advice = "a smaller --batch, --sequence or model";
  static_cast<void>(require_memory("bench step", run));
}

// The configuration of a model whose steps can be tried.
ModelConfig checked(const StepTrialOptions& options, const DevicePrecision& placement,
                    std::int64_t sequence) {
  ModelConfig config = resolved(options.model);
  const std::unique_ptr<Model> form = make_unallocated_model(config);
  form->check_length(sequence, options.carry_state);
  form->check_recompute(options.recompute);
  if (options.checks_memory && options.batches.empty()) require_memory_of_steps(options, placement, sequence);
  return config;
}

}  // namespace

StepTrialOptions steps_of_run(const PlannedRun& run) {
  const TrainConfig& train = run.config.train;
  StepTrialOptions options;
  options.model = run.config.model;
  options.sequence = run.batch.tokens.dim(1);
  options.capture = value_is(train.capture, StepCapture::automatic);
  options.micro_batches = train.micro_batches;
  options.recompute = recompute_named(train.recompute);
  options.carry_state = run.carries_state;
  options.batches.assign(static_cast<std::size_t>(train.accumulate), continued(run.batch));
  options.optimizer = train;
  return options;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t limit, const char* stream,
                                        std::int64_t step) {
  const RandomKey key = random_key(kBenchSeed, stream, static_cast<std::uint64_t>(step));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>(key.word(i) % static_cast<std::uint64_t>(limit));
  return tokens;
}

StepTrial::StepTrial(const StepTrialOptions& options, const DevicePrecision& placement)
    : capture_(options.capture && can_capture(placement.device)),
      carry_state_(options.carry_state),
      micro_batches_(options.micro_batches),
      recompute_(options.recompute),
      sequence_(options.sequence > 0 ? options.sequence : options.model.context),
      model_(make_model(checked(options, placement, sequence_), placement.dtype, placement.device,
                        placement.matmul)),
      recorder_(model_->params(), {.wanted = options.capture}) {
  const ModelConfig& config = model_->full_config();
  model_->params().initialize(kBenchSeed);
  optimizer_ = make_optimizer(model_->params(), options.optimizer);
  queue_ = std::make_unique<StepQueue>(
      *model_, recorder_, std::max<std::int64_t>(1, std::ssize(options.batches)), options.micro_batches);
  if (!options.batches.empty()) {
    batches_ = {options.batches};
    return;
  }
  const std::int64_t tail = std::min(options.tail, sequence_), rows = rows_of(config, sequence_, tail);
  for (std::int64_t i = 0; i < kSteps; ++i) {
    Batch batch =
        make_batch(options.batch, random_tokens(options.batch * sequence_, config.vocab, "bench.tokens", i),
                   random_tokens(options.batch * rows, config.n_out, "bench.targets", i));
    batch.tail = tail;
    batches_.push_back({std::move(batch)});
  }
}

const std::vector<Batch>& StepTrial::next_batches() const {
  return batches_[static_cast<std::size_t>(launched_ % std::ssize(batches_))];
}

StepOptions StepTrial::next_options() const {
  StepOptions options;
  options.learning_rate = OptimizerOptions().learning_rate;
  options.seed = kBenchSeed;
  options.step = launched_;
  options.carry_state = carry_state_;
  options.micro_batches = micro_batches_;
  options.recompute = recompute_;
  return options;
}

void StepTrial::launch() {
  queue_->launch(*optimizer_, next_batches(), carried_, next_options());
  ++launched_;
}

StepResult StepTrial::collect() {
  StepResult result = queue_->collect(*optimizer_, carried_);
  if (!result.finite) fail<NonFiniteError>("bench: step {}: {}", steps_, result.problem);
  ++steps_;
  return result;
}

StepResult StepTrial::step() {
  if (queue_->under_way() == 0) launch();
  if (queue_->may_run_ahead()) launch();
  return collect();
}

StepResult StepTrial::step_uncaptured() {
  while (queue_->under_way() > 0) static_cast<void>(collect());
  StepResult result = train_step(*model_, *optimizer_, next_batches(), carried_, next_options(), nullptr);
  if (!result.finite) fail<NonFiniteError>("bench: step {}: {}", steps_, result.problem);
  ++launched_;
  ++steps_;
  return result;
}

void StepTrial::warm_up() {
  for (int i = 0; i < (capture_ ? kMostWarmUp : 2); ++i) {
    static_cast<void>(step());
    if (captured()) break;
  }
  if (captured()) static_cast<void>(step());  // the first replay of a graph also uploads it to the GPU
}

}  // namespace eddy::app
