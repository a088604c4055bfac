// The causes, largest first, and the keys that help with each.
#include "train/plan/memory_verdict.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

constexpr double kMargin = 0.1;  // of the budget, on both sides
// Counting ends at so many times the budget: 65,536 layers of the default size would take 40 seconds to count.
constexpr std::int64_t kMostBudgets = 4;

// Whether the memory of a run is compared with the budget.
bool compares(const PlannedRun& run, const MemoryBudget& budget) {
  return run.placement.device == kCpu && !budget.limit.empty();
}

// Those of these keys that the run's model or task reads.
std::vector<std::string> read_keys(const RunConfig& config, std::initializer_list<const char*> wanted) {
  RunConfig copy = config;
  const ConfigKeys keys = keys_of(copy);
  std::vector<std::string> found;
  for (const char* const name : wanted)
    for (const ConfigField& field : keys.fields())
      if (field.full_key() == name && reads_key(config, field)) found.emplace_back(name);
  return found;
}

// "a smaller model.dim or model.layers".
std::string smaller(const RunConfig& config, std::initializer_list<const char*> wanted) {
  return fmt::format("a smaller {}", fmt::join(read_keys(config, wanted), " or "));
}

// The largest whole part of the batch with which the run takes at most so many bytes; 0 if none does.
std::int64_t fitting_batch(const PlannedRun& run, std::int64_t bytes, std::int64_t* peak) {
  const std::int64_t batch = run.config.train.batch;
  for (std::int64_t parts = 2; parts <= batch; ++parts) {
    const std::int64_t rows = batch / parts;
    if (batch % parts != 0 || rows % run.config.train.micro_batches != 0) continue;
    PlannedRun less = run;
    less.config.train.batch = rows;
    less.config.train.accumulate *= parts;
    less.batch = first_rows(run.batch, rows);
    const MemoryPlan plan = plan_memory(less, bytes);
    *peak = plan.peak;
    if (plan.complete && plan.peak <= bytes) return rows;
  }
  return 0;
}

// What makes the model itself smaller.
std::string advice_for_model(const PlannedRun& run, const MemoryPlan& plan) {
  std::string advice = smaller(run.config, {"model.dim", "model.layers", "model.mlp_dim"});
  const ModelConfig& model = run.config.model;
  const std::int64_t table = model.vocab * model.dim * (model.tied ? 1 : 2);
  if (2 * table > plan.parameters && !read_keys(run.config, {"data.tokenizer"}).empty())
    advice += fmt::format("; most of them are tables of {} tokens: another data.tokenizer has fewer",
                          grouped(model.vocab));
  if (value_is(run.config.train.optimizer, OptimizerName::adafactor) || !plan.complete) return advice;
  PlannedRun factored = run;
  factored.config.train.optimizer = "adafactor";
  if (const MemoryPlan other = plan_memory(factored); other.optimizer < plan.optimizer)
    advice += fmt::format("; train.optimizer adafactor takes {} less",
                          human_bytes(plan.optimizer - other.optimizer));
  return advice;
}

// The run with this value of train.recompute, if its model takes that and the run then needs
// at most so many bytes; else nothing.
std::string advice_to_recompute(const PlannedRun& run, Recompute value, std::int64_t bytes) {
  if (value <= recompute_named(run.config.train.recompute)) return "";
  if (value == Recompute::block && !make_unallocated_model(run.config.model)->has_blocks()) return "";
  PlannedRun less = run;
  less.config.train.recompute = value_name(value);
  const MemoryPlan plan = plan_memory(less, bytes);
  return plan.complete && plan.peak <= bytes ? fmt::format("train.recompute {} takes {} and more time",
                                                           value_name(value), human_bytes(plan.peak))
                                             : "";
}

// What makes the steps smaller.
std::string advice_for_steps(const PlannedRun& run, const MemoryPlan& plan, std::int64_t bytes) {
  const TrainConfig& train = run.config.train;
  std::int64_t peak = 0;
  if (const std::int64_t rows = fitting_batch(run, bytes, &peak); rows > 0)
    return fmt::format("train.batch {} with train.accumulate {} takes {} for steps of as many tokens", rows,
                       train.accumulate * (train.batch / rows), human_bytes(peak));
  for (const Recompute value : {Recompute::layer, Recompute::block})
    if (std::string text = advice_to_recompute(run, value, bytes); !text.empty()) return text;
  std::vector<std::string> ways;
  if (train.batch > 1) ways.emplace_back("train.batch 1");
  if (plan.state > plan.activations)
    if (const auto keys = read_keys(run.config, {"model.memory_size", "model.states", "model.window"});
        !keys.empty())
      ways.push_back(fmt::format("a smaller {}", fmt::join(keys, " or ")));
  if (!run.shorter_rows.empty()) ways.push_back(run.shorter_rows);
  ways.push_back(smaller(run.config, {"model.dim", "model.layers"}));
  return fmt::format("{}", fmt::join(ways, ", "));
}

std::string advice(const PlannedRun& run, const MemoryPlan& plan, std::int64_t bytes) {
  if (!run.advice.empty()) return run.advice;
  if (plan.program + plan.text > bytes)
    return plan.text > plan.program ? "the text alone is too large: a smaller text"
                                    : "the program alone needs more: fewer threads (--threads), more memory";
  if (plan.program + plan.text + plan.of_model() > bytes || (!plan.complete && plan.of_model() == 0))
    return "the model alone is too large, whatever the batch: " + advice_for_model(run, plan);
  return advice_for_steps(run, plan, bytes);
}

}  // namespace

MemoryVerdict judge(const PlannedRun& run, const MemoryPlan& plan, const MemoryBudget& budget) {
  const auto peak = static_cast<double>(plan.peak), bytes = static_cast<double>(budget.bytes);
  if (plan.on_gpu || budget.limit.empty() || peak < (1 - kMargin) * bytes) return {};
  const bool exceeds = peak > (1 + kMargin) * static_cast<double>(budget.with_swap());
  const bool overruled =
      value_is(run.config.train.memory_check, MemoryCheck::warn) || memory_check_overruled();
  const bool swaps = budget.swap > 0 && peak > bytes;
  const std::string there =
      fmt::format("{} has {} for it{}", budget.limit, human_bytes(budget.bytes),
                  swaps ? fmt::format(" and {} of free swap{}", human_bytes(budget.swap),
                                      exceeds ? "" : ", which makes it slow")
                        : "");
  std::string ways = advice(run, plan, static_cast<std::int64_t>((1 - kMargin) * bytes));
  if (exceeds && !overruled)
    ways +=
        fmt::format("; {} warn overrules this", run.advice.empty() ? "train.memory_check" : "--memory-check");
  const Fit fit = exceeds && !overruled ? Fit::exceeds : Fit::close;
  if (!plan.complete)
    return {fit, fmt::format("the run takes more than {} of memory, and {} ({})", human_bytes(plan.peak),
                             there, ways)};
  return {fit,
          fmt::format("the run takes {} of memory, and {} ({} of model and optimizer, {} of steps, {} of "
                      "text, {} of program; {})",
                      human_bytes(plan.peak), there, human_bytes(plan.of_model()),
                      human_bytes(plan.state + plan.activations + plan.kept), human_bytes(plan.text),
                      human_bytes(plan.program), ways)};
}

MemoryPlan plan_memory_near(const PlannedRun& run, const MemoryBudget& budget, std::int64_t budgets) {
  return compares(run, budget) ? plan_memory(run, budgets * budget.with_swap()) : plan_memory(run);
}

MemoryPlan require_memory(const char* command, const PlannedRun& run) {
  const MemoryBudget budget = memory_budget();
  MemoryPlan plan;
  try {
    if (compares(run, budget) &&
        static_cast<double>(run.text) > (1 + kMargin) * static_cast<double>(budget.with_swap())) {
      plan.text = plan.peak = run.text;
      plan.complete = false;
    } else {
      plan = plan_memory_near(run, budget, kMostBudgets);
    }
  } catch (const DeviceError& error) {  // a model that reads values on the host can be trained all the same
    add_warning(fmt::format("warning: the memory of this run is not counted: {}", error.what()));
    return plan;
  }
  const MemoryVerdict verdict = judge(run, plan, budget);
  if (verdict.fit == Fit::exceeds) fail<OutOfMemoryError>("{}: {}", command, verdict.text);
  if (verdict.fit == Fit::close) add_warning("warning: " + verdict.text);
  return plan;
}

}  // namespace eddy::training
