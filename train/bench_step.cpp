// The training step, timed.
#include "train/bench_step.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "autograd/tape.h"
#include "models/model.h"
#include "ops/backends.h"
#include "ops/cross_entropy.h"
#include "tensor/allocator.h"
#include "tensor/format.h"
#include "tensor/philox.h"
#include "tensor/thread_pool.h"
#include "train/adam.h"
#include "train/human_text.h"
#include "train/placement.h"

namespace eddy {
namespace {

constexpr std::uint64_t kSeed = 1337;
constexpr std::int64_t kWarmUp = 2;

Tensor random_tokens(const Shape& shape, std::int64_t limit, const char* stream, std::int64_t step) {
  const RandomKey key = random_key(kSeed, stream, static_cast<std::uint64_t>(step));
  const Tensor tokens = Tensor::empty(shape, Dtype::i32);
  std::int32_t* const values = tokens.data<std::int32_t>();
  for (std::int64_t i = 0; i < tokens.elements(); ++i)
    values[i] = static_cast<std::int32_t>(key.word(static_cast<std::uint64_t>(i)) %
                                          static_cast<std::uint64_t>(limit));
  return tokens;
}

class StepRunner {
 public:
  StepRunner(const StepBenchOptions& options, std::int64_t sequence, const Placement& placement)
      : config_(resolved(options.model)),
        batch_(options.batch),
        sequence_(sequence),
        tail_(std::min(options.tail, sequence)),
        device_(placement.device),
        model_(make_model(config_, placement.dtype, placement.device)) {
    model_->params().initialize(kSeed);
    TrainConfig train;
    train.optimizer = "adamw";
    optimizer_.emplace(model_->params(), train);
    learning_rate_ = train.learning_rate;
  }

  // One step; fills in what the graph held after the forward. `profiler` may be null.
  double run(std::int64_t step, StepProfiler* profiler, StepBench* result) {
    std::optional<ObserveTape> observing;
    if (profiler != nullptr) {
      observing.emplace(*profiler);
      profiler->start();
    }
    const auto mark = [profiler](const char* part) {
      if (profiler != nullptr) profiler->mark(part);
    };
    ForwardInput input;
    input.tokens =
        raw::to_device(random_tokens({batch_, sequence_}, config_.vocab, "bench.tokens", step), device_);
    input.tail = tail_;
    input.dropout = {true, kSeed, static_cast<std::uint64_t>(step)};
    model_->params().zero_gradients();
    mark("(random tokens)");
    const ForwardOutput output = model_->forward(input);
    const Tensor targets = raw::to_device(
        random_tokens({batch_, output.logits.dim(1)}, config_.n_out, "bench.targets", step), device_);
    mark("(random tokens)");
    const Tensor loss = cross_entropy(output.logits, targets);
    const double value = loss.item();
    const GraphStats graph = graph_stats();
    result->graph_nodes = graph.nodes;
    result->saved_bytes = graph.saved_bytes;
    mark("(loss value)");
    backward(loss);
    mark("(end of backward)");
    static_cast<void>(optimizer_->step(model_->params(), learning_rate_));
    synchronize(device_);
    mark("(clip and optimizer)");
    if (!std::isfinite(value)) fail<NonFiniteError>("bench step: the loss of step {} is {}", step, value);
    return value;
  }

  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return config_; }

 private:
  ModelConfig config_;
  std::int64_t batch_, sequence_, tail_;
  Device device_;
  std::unique_ptr<Model> model_;
  std::optional<AdamOptimizer> optimizer_;
  double learning_rate_ = 0;
};

}  // namespace

StepBench bench_step(const StepBenchOptions& options) {
  const std::int64_t sequence = options.sequence > 0 ? options.sequence : options.model.context;
  if (options.batch < 1 || options.tail < 1 || options.sequence < 0 || options.steps < 0)
    fail<ValueError>(
        "bench step: batch {}, tail {}, sequence {}, steps {} (batch and tail at least 1, the others not "
        "negative)",
        options.batch, options.tail, options.sequence, options.steps);
  const Placement placement =
      choose_placement({"bench step", "--device", "--precision"}, options.device, options.precision);
  if (options.profile && !(placement.device == kCpu))
    fail<ConfigError>(
        "bench step: --profile and --device cuda (a GPU runs its kernels later than they are asked for: time "
        "them "
        "with `nsys profile eddy bench step --device cuda`)");
  StepRunner runner(options, sequence, placement);
  const bool half = placement.dtype == Dtype::bf16 && !(placement.device == kCpu);
  const ProductProbe probe(options.product_size, placement.device, half ? Dtype::bf16 : Dtype::f32);

  StepBench result;
  result.model = runner.config().model;
  result.parameters = runner.model().params().count();
  result.batch = options.batch;
  result.sequence = sequence;
  result.threads = thread_count();
  result.dropout = runner.config().dropout;
  result.device = options.device;
  result.precision = options.precision;
  result.flops_per_token = 2.0 * 3.0 * runner.model().forward_macs_per_token(sequence);

  allocator(placement.device).reset_peak();
  for (std::int64_t step = 0; step < kWarmUp; ++step) static_cast<void>(runner.run(step, nullptr, &result));
  static_cast<void>(probe.run());

  StepProfiler profiler;
  std::vector<double> steps, product_seconds;
  const BenchClock::time_point start = BenchClock::now();
  const auto goes_on = [&] {
    const auto done = static_cast<std::int64_t>(steps.size());
    return options.steps > 0 ? done < options.steps : done < 3 || elapsed_seconds(start) < options.seconds;
  };
  while (goes_on()) {
    const BenchClock::time_point before = BenchClock::now();
    result.loss = runner.run(kWarmUp + static_cast<std::int64_t>(steps.size()),
                             options.profile ? &profiler : nullptr, &result);
    steps.push_back(elapsed_seconds(before));
    // A tenth of the time: one short product beside a long step would meet a neighbour's burst of load, or
    // miss it.
    const BenchClock::time_point probing = BenchClock::now();
    do product_seconds.push_back(1 / probe.run());
    while (elapsed_seconds(probing) < 0.1 * steps.back());
  }
  result.step = timing_of(std::move(steps));
  const Timing product = timing_of(std::move(product_seconds));
  result.product = {1 / product.best, 1 / product.median};
  result.peak_bytes = allocator(placement.device).stats().peak_bytes;
  if (options.profile) {
    result.by_op = profiler.by_op();
    result.by_module = profiler.by_module();
  }
  return result;
}

std::string to_text(const StepBench& b) {
  std::string text =
      fmt::format("{}: {} parameters, batch {}, sequence {}, dropout {}, {}, {}{} thread{}, {} steps\n",
                  b.model, grouped(b.parameters), b.batch, b.sequence, b.dropout, b.precision,
                  b.device == "cuda" ? "cuda, " : "", b.threads, b.threads == 1 ? "" : "s", b.step.runs);
  text += text_table(
      {{"", "median", "best"},
       {"step, ms", table_number(b.step.median * 1e3), table_number(b.step.best * 1e3)},
       {"tokens per second", table_number(b.tokens() / b.step.median),
        table_number(b.tokens() / b.step.best)},
       {"product beside it, GFLOP/s", table_number(b.product.median), table_number(b.product.best)},
       {"floor, ms", table_number(b.floor_median() * 1e3), table_number(b.floor_best() * 1e3)},
       {"floor / step, %", table_number(100 * b.floor_median() / b.step.median),
        table_number(100 * b.floor_best() / b.step.best)}});
  text += fmt::format("{} operations per token; peak memory {}; graph: {} nodes, {} saved\n",
                      human_count(b.flops_per_token), human_bytes(b.peak_bytes), b.graph_nodes,
                      human_bytes(b.saved_bytes));
  if (!b.by_op.empty()) {
    text += "\nper step, time between events given to the op that follows\n";
    text +=
        profile_table("op", b.by_op, b.step.runs) + '\n' + profile_table("module", b.by_module, b.step.runs);
  }
  return text;
}

nlohmann::json to_json(const StepBench& b) {
  nlohmann::json value{
      {"model", b.model},
      {"parameters", b.parameters},
      {"batch", b.batch},
      {"sequence", b.sequence},
      {"threads", b.threads},
      {"dropout", b.dropout},
      {"device", b.device},
      {"precision", b.precision},
      {"steps", b.step.runs},
      {"step_ms", {{"median", b.step.median * 1e3}, {"best", b.step.best * 1e3}}},
      {"tokens_per_second", {{"median", b.tokens() / b.step.median}, {"best", b.tokens() / b.step.best}}},
      {"loss", b.loss},
      {"flops_per_token", b.flops_per_token},
      {"product_gflops", {{"median", b.product.median}, {"best", b.product.best}}},
      {"floor_ms", {{"median", b.floor_median() * 1e3}, {"best", b.floor_best() * 1e3}}},
      {"floor_percent",
       {{"median", 100 * b.floor_median() / b.step.median}, {"best", 100 * b.floor_best() / b.step.best}}},
      {"peak_bytes", b.peak_bytes},
      {"graph_nodes", b.graph_nodes},
      {"saved_bytes", b.saved_bytes}};
  if (!b.by_op.empty()) {
    value["by_op"] = profile_json(b.by_op, b.step.runs);
    value["by_module"] = profile_json(b.by_module, b.step.runs);
  }
  return value;
}

}  // namespace eddy
