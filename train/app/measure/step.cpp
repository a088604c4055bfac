// The training step, timed.
#include "train/app/measure/step.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/eddy/registry.h"
#include "ops/core/product_algorithms.h"
#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/threads/thread_pool.h"
#include "train/config/run_config.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::int64_t kLeastSteps = 3;
// Rows of the square product that reaches the full rate of a device; on a GPU it takes some milliseconds in
// bf16.
constexpr std::int64_t kCpuProduct = 1536, kGpuProduct = 8192;

// Repeats the step, for so many steps or so long.
template <class Step>
void repeat(std::int64_t steps, double seconds, Step&& step) {
  const Clock::time_point start = Clock::now();
  for (std::int64_t done = 0;
       steps > 0 ? done < steps : done < kLeastSteps || seconds_between(start) < seconds; ++done)
    step();
}

// Measures the rates of products and memory for the floors of single ops.
ProfileRates profile_rates(const DevicePrecision& placement, const StepBenchOptions& options,
                           std::int64_t product_size, const ProductProbe& probe, bool half) {
  CeilingSizes sizes;
  sizes.product = product_size;
  sizes.bytes = {std::max<std::int64_t>(1, options.memory_bytes / 16), options.memory_bytes};
  ProfileRates rates;
  rates.ceilings = measure_ceilings(kShortCeilings, sizes, placement.device, placement.matmul);
  if (half)
    for (int i = 0; i < 3; ++i) rates.half_product = std::max(rates.half_product, probe.run());
  return rates;
}

}  // namespace

StepBench bench_step(const StepBenchOptions& options) {
  if (options.batch < 1 || options.tail < 1 || options.sequence < 0 || options.steps < 0)
    fail<ValueError>(
        "bench step: batch {}, tail {}, sequence {}, steps {} (batch and tail at least 1, the others "
        "not negative)",
        options.batch, options.tail, options.sequence, options.steps);
  const DevicePrecision placement =
      choose_device_precision({"bench step", "--device", "--precision"}, options.device, options.precision);
  reset_warnings();  // report only those of this benchmark
  std::optional<StepTrial> trial(std::in_place, options, placement);
  const std::int64_t sequence = trial->sequence();
  const bool half = placement.dtype == Dtype::bf16 && placement.device != kCpu;
  const std::int64_t product_size = options.product_size > 0   ? options.product_size
                                    : placement.device == kCpu ? kCpuProduct
                                                               : kGpuProduct;
  const std::int64_t before_probe = allocator(placement.device).stats().live_bytes;
  const ProductProbe probe(product_size, placement.device, half ? Dtype::bf16 : Dtype::f32, placement.matmul);

  const std::int64_t probe_bytes = allocator(placement.device).stats().live_bytes - before_probe;

  StepBench result;
  result.model = trial->model().config().model;
  result.parameters = trial->model().params().count();
  result.batch = options.batch;
  result.sequence = sequence;
  result.threads = thread_count();
  result.dropout = trial->model().config().dropout;
  result.recompute = value_name(options.recompute);
  result.device = options.device;
  result.precision = options.precision;
  result.flops_per_token =
      3.0 *
      forward_cost(options.model, sequence, options.carry_state, std::min(options.tail, sequence)).flops /
      static_cast<double>(sequence);

  {
    const ProductTiming timing;  // where EDDY_KERNELS asks for algorithms that were timed
    trial->warm_up();
  }
  // Warm-up does not count: a capture needs the memory of the steps before it beside its own.
  allocator(placement.device).reset_peak();
  std::vector<double> steps, product_seconds, instruction_seconds;
  double probe_seconds = 0, unprobed_seconds = 0;
  const auto run_probe = [&] {
    const Clock::time_point before = Clock::now();
    product_seconds.push_back(1 / probe.run());
    if (placement.device == kCpu) instruction_seconds.push_back(1 / run_instruction(placement.matmul));
    probe_seconds = seconds_between(before);
  };
  static_cast<void>(probe.run());  // warms up
  run_probe();
  const double seconds = options.profile ? options.seconds / 2 : options.seconds;
  repeat(options.steps, seconds, [&] {
    const Clock::time_point before = Clock::now();
    const StepResult step = trial->step();
    steps.push_back(seconds_between(before));
    result.loss = step.loss;
    result.graph_nodes = step.graph.nodes;
    result.saved_bytes = step.graph.saved_bytes;
    // Products take a tenth of the time: a single short product beside a long step would be hit by a burst of other
    // load on the machine, or miss it. Beside short steps they take a quarter, after some steps each, since a product
    // empties the caches for the step that follows.
    unprobed_seconds += steps.back();
    if (unprobed_seconds < 3 * probe_seconds) return;
    const Clock::time_point probing = Clock::now();
    do run_probe();
    while (seconds_between(probing) < 0.1 * unprobed_seconds);
    unprobed_seconds = 0;
  });
  result.step = timing_of(std::move(steps));
  const Timing product = timing_of(std::move(product_seconds));
  result.product = {1 / product.best, 1 / product.median};
  if (!instruction_seconds.empty()) {
    const Timing instruction = timing_of(std::move(instruction_seconds));
    result.instruction = {1 / instruction.best, 1 / instruction.median};
  }
  result.peak_bytes = allocator(placement.device).stats().peak_bytes - probe_bytes;
  result.captured = trial->captured();
  result.message = trial->message();
  if (placement.device != kCpu) result.gpu_kernels = gpu_kernels();
  result.tf32 = placement.device != kCpu && placement.matmul != MatmulPrecision::f32;
  result.warnings = take_warnings();
  if (!options.profile) return result;

  {
    StepProfiler profiler(placement.device, profile_rates(placement, options, product_size, probe, half));
    const ObserveKernels kernels(profiler, placement.device);
    const ObserveTape tape(profiler);
    repeat(options.steps, seconds, [&] {
      profiler.start();
      static_cast<void>(trial->step_uncaptured());
      profiler.finish("(clip and optimizer)");
    });
    result.by_op = profiler.by_op();
    result.by_module = profiler.by_module();
    result.profiled_steps = profiler.steps();
  }
  StepCalls calls = record_calls(*trial, placement.device);
  trial.reset();  // its memory is that of the calls
  allocator(placement.device).trim();
  result.alone = time_alone(std::move(calls), placement.device, options.steps > 0 ? 0 : seconds / 2);
  return result;
}

Measurement measurement_of(const StepBench& b) {
  Measurement m;
  m.bench = "step";
  m.title = "A training step";
  m.conditions = fmt::format(
      "{}: {} parameters, batch {}, sequence {}, dropout {}, {}{}, {}{} {}, {} {}", b.model,
      grouped(b.parameters), b.batch, b.sequence, b.dropout,
      b.recompute == value_name(Recompute::none) ? "" : fmt::format("{} recomputed, ", b.recompute),
      b.precision, value_is(b.device, DeviceChoice::cuda) ? b.captured ? "cuda (graph), " : "cuda, " : "",
      b.threads, plural(b.threads, "thread"), b.step.runs, plural(b.step.runs, "step"));
  m.facts = {{"model", b.model},
             {"parameters", b.parameters},
             {"batch", b.batch},
             {"sequence", b.sequence},
             {"threads", b.threads},
             {"dropout", b.dropout},
             {"recompute", b.recompute},
             {"device", b.device},
             {"precision", b.precision},
             {"steps", b.step.runs},
             {"loss", b.loss},
             {"flops_per_token", b.flops_per_token},
             {"captured", b.captured},
             {"peak_bytes", b.peak_bytes},
             {"graph_nodes", b.graph_nodes},
             {"saved_bytes", b.saved_bytes}};
  MeasuredTable& table = m.tables.emplace_back();
  table.columns = {{"", "median"}, {"", "best"}};
  table.names = " ";
  const auto row = [&](const char* key, const char* name, double median, double best) {
    m.facts[key] = {{"median", median}, {"best", best}};
    table.series.push_back({name, {}, {{median, best}}});
  };
  row("step_ms", "step, ms", b.step.median * 1e3, b.step.best * 1e3);
  row("tokens_per_second", "tokens per second", b.tokens() / b.step.median, b.tokens() / b.step.best);
  row("product_gflops", "product beside it, GFLOP/s", b.product.median, b.product.best);
  if (b.instruction.best > 0)
    row("instruction_gflops", "its instruction alone, GFLOP/s", b.instruction.median, b.instruction.best);
  row("floor_ms", "floor, ms", b.floor_median() * 1e3, b.floor_best() * 1e3);
  row("floor_percent", "floor / step, %", 100 * b.floor_median() / b.step.median,
      100 * b.floor_best() / b.step.best);
  const auto alone = [&](const char* key, const char* name, const char* floor, const CallsAlone& part) {
    if (part.time.runs == 0) return;
    row(key, name, part.time.median * 1e3, part.time.best * 1e3);
    m.facts[key]["calls"] = part.calls;
    m.facts[key]["flops"] = part.flops;
    table.series.push_back({floor, {}, {{b.floor_median(part) * 1e3, b.floor_best(part) * 1e3}}});
  };
  alone("products_ms", "products alone, ms", "their floor, ms", b.alone.products);
  alone("attention_ms", "attention alone, ms", "its floor, ms", b.alone.attention);
  if (b.instruction.best > 0)
    row("instruction_percent", "floor by the instruction / step, %",
        100 * b.floor_median() / b.step.median * b.product.median / b.instruction.median,
        100 * b.floor_best() / b.step.best * b.product.best / b.instruction.best);
  table.notes = {fmt::format("{} operations per token; peak memory {}; graph: {} nodes, {} saved",
                             human_count(b.flops_per_token), human_bytes(b.peak_bytes), b.graph_nodes,
                             human_bytes(b.saved_bytes))};
  if (b.alone.other_flops > 0)
    table.notes.push_back(fmt::format(
        "{:.0f} % of the operations are in kernels that multiply by themselves: neither alone has them",
        100 * b.alone.other_flops / (b.flops_per_token * b.tokens())));
  if (!b.alone.problem.empty())
    table.notes.push_back("products and attention are not timed alone: " + b.alone.problem);
  if (b.gpu_kernels) {
    table.notes.push_back(
        fmt::format("kernels: {}, TF32 {}", describe(*b.gpu_kernels), b.tf32 ? "on" : "off"));
    for (const auto& [choice, kernel] : b.gpu_kernels->chosen) m.facts["gpu_kernels"][choice] = kernel;
    m.facts["gpu_kernels"]["tf32"] = b.tf32;
  }
  if (!b.message.empty()) table.notes.push_back(b.message);
  table.notes.insert(table.notes.end(), b.warnings.begin(), b.warnings.end());
  if (!b.warnings.empty()) m.facts["warnings"] = b.warnings;
  if (b.by_op.empty()) return m;
  MeasuredTable by_op = profile_table("op", b.by_op, b.profiled_steps);
  by_op.title = fmt::format(
      "profile of {} further {}{}, milliseconds of one step: its time is the floor (the longer of the\n"
      "operations at the rate of a large product and the bytes at that of memory, kernel by kernel), what\n"
      "kernels take above it, and what happens outside of them ({})",
      b.profiled_steps, plural(b.profiled_steps, "step"), b.captured ? ", not captured" : "",
      value_is(b.device, DeviceChoice::cuda) ? "the GPU waits for the host" : "copies, allocation, the tape");
  m.facts["by_op"] = profile_json(b.by_op, b.profiled_steps);
  m.facts["by_module"] = profile_json(b.by_module, b.profiled_steps);
  m.tables.push_back(std::move(by_op));
  m.tables.push_back(profile_table("module", over_layers(b.by_module), b.profiled_steps));
  return m;
}

}  // namespace eddy::app
