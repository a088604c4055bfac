// `eddy plan`: what a run takes, before it begins. Its memory is counted; its speed is measured by some of its steps.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "models/eddy/fit_params.h"
#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/run_speed.h"
#include "train/app/program/commands.h"
#include "train/app/views/table.h"
#include "train/plan/memory_verdict.h"
#include "train/plan/run_progress.h"
#include "train/record/percent_line.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr double kGiB = 1 << 30;
// A run may be planned for a larger machine. What takes so many times the budget is not counted to its end.
constexpr std::int64_t kMostBudgets = 64;

struct PlanFlags {
  NewRunOptions run;
  double seconds = 5;
};

std::string in_gib(std::int64_t bytes) {
  return table_number(static_cast<double>(bytes) / kGiB);
}

void print_memory(const PlannedRun& run, const MemoryPlan& plan, const MemoryBudget& budget) {
  const TrainConfig& train = run.config.train;
  Table table{{"memory, counted", "GiB"}, {}, "lr"};
  std::vector<std::vector<std::string>>& rows = table.rows;
  rows.push_back({"parameters", in_gib(plan.values)});
  rows.push_back({"gradients", in_gib(plan.gradients)});
  rows.push_back({"optimizer, " + train.optimizer, in_gib(plan.optimizer)});
  rows.push_back({fmt::format("activations, {} x {} tokens", train.batch, run.batch.tokens.dim(1)),
                  in_gib(plan.activations)});
  rows.push_back({"state", in_gib(plan.state)});
  rows.push_back({"kept for reuse", in_gib(plan.kept)});
  if (!plan.on_gpu) {
    rows.push_back({"text", in_gib(plan.text)});
    rows.push_back({"program", in_gib(plan.program)});
    if (plan.peak == plan.reading) rows.push_back({"while reading the text", in_gib(plan.reading)});
  }
  rows.push_back({"peak", in_gib(plan.peak)});
  print(to_text(table));
  if (plan.counted_layers > 0)
    print_line("counted with {} layers; what each adds is multiplied for {}", plan.counted_layers,
               grouped(run.config.model.layers));
  if (plan.counted_tokens > 0)
    print_line("counted with rows of {} tokens; what each adds is multiplied for {}",
               grouped(plan.counted_tokens), grouped(run.batch.tokens.dim(1)));
  if (plan.on_gpu)
    print_line("of the GPU's memory, counted without its fused kernels");
  else if (!budget.limit.empty())
    print_line("{} has {} GiB, of which {} are free for the run", budget.limit, in_gib(budget.whole),
               in_gib(budget.bytes));
}

// What other values of train.recompute would take.
void print_recompute(const PlannedRun& run, const MemoryPlan& plan) {
  const std::unique_ptr<Model> model = make_unallocated_model(run.config.model);
  Table table{{"train.recompute", "activations, GiB", "peak, GiB"}, {}, "lr"};
  std::string missing;
  for (const char* const value : ValueNames<Recompute>::all) {
    if (recompute_named(value) == Recompute::block && !model->has_blocks()) {
      missing = fmt::format(
          "train.recompute \"block\" is not for {}: it has no loop over the sequence whose turns could "
          "be computed again",
          run.config.model.model);
      continue;
    }
    PlannedRun other = run;
    other.config.train.recompute = value;
    const bool is_own = value == run.config.train.recompute;
    const MemoryPlan counted = is_own ? plan : plan_memory(other);
    table.rows.push_back({is_own ? std::string(value) + ", as now" : value, in_gib(counted.activations),
                          in_gib(counted.peak)});
  }
  print_line("");
  print(to_text(table));
  if (!missing.empty()) print_line("{}", missing);
}

void print_speed(const PlannedRun& run, const Task& task, const RunSpeed& speed) {
  const TrainConfig& train = run.config.train;
  const double rate = speed.tokens_per_second(), step = speed.step.median;
  print_line("\nspeed, measured: {} {} of {} tokens on {} {}, {} ms each", speed.step.runs,
             plural(speed.step.runs, "step"), grouped(speed.tokens), thread_count(),
             plural(thread_count(), "thread"), table_number(step * 1e3));
  print_line("operations a token   {}, {} GFLOP/s", human_count(speed.flops_per_token),
             table_number(speed.flops_per_token * rate * 1e-9));
  print_line("tokens a second      {}", table_number(rate));
  const double epoch = static_cast<double>(task.epoch_tokens());
  if (epoch > 0)
    print_line("an epoch             {} minutes: {} tokens, {} steps", table_number(epoch / rate / 60),
               human_count(epoch), human_count(std::ceil(epoch / static_cast<double>(speed.tokens))));
  const auto steps = static_cast<double>(train.steps);
  const RunTime time = time_of_run(run, task, speed);
  print_line("to the end           {}: {} {} {}, evaluations {}{}", human_duration(time.seconds()),
             grouped(train.steps), plural(train.steps, "step"), human_duration(time.training),
             human_duration(time.evaluating), time.whole ? "" : " and those of the whole validation split");
  if (epoch > 0)
    print_line("                     {} epochs",
               table_number(steps * static_cast<double>(speed.tokens) / epoch));
  if (train.minutes > 0 && train.minutes * 60 < time.seconds())
    print_line("train.minutes        {} end it earlier, after some {} steps", train.minutes,
               human_count(steps * train.minutes * 60 / time.seconds()));
  if (const std::string schedule = schedule_text(train); !schedule.empty())
    print_line("schedule             {}", schedule);
  print_line("Samples, saves and other programs on the machine add to these times.");
}

int run_plan(const PlanFlags& flags, const CLI::App& app) {
  std::vector<std::string> notes;
  RunConfig config = flags.run.gathered("plan", notes);
  take_threads(config, app);
  validate(config);
  for (const std::string& note : notes) say(note);
  const TrainConfig& train = config.train;
  if (train.threads > 0) set_thread_count(static_cast<int>(train.threads));
  const DevicePrecision placement =
      choose_device_precision({"plan", "train.device", "train.precision"}, train.device, train.precision);
  const std::int64_t before_text = resident_bytes();
  TaskArguments arguments;
  arguments.config = config;
  arguments.messages = &std::cout;
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  check_data_is_read(*task, config);
  task->set_model_sizes(config.model);
  fit_params(config.model);
  const std::unique_ptr<Model> form = make_unallocated_model(config.model);
  form->check_recompute(recompute_named(train.recompute));
  if (task->row_length() > 0) form->check_length(task->row_length(), task->carries_state());
  const PlannedRun run = planned_run(config, placement, *task, before_text);
  const MemoryBudget budget = memory_budget();
  const MemoryPlan plan = plan_memory_near(run, budget, kMostBudgets);
  print_line("{} on {}: {} parameters, {}, {} on {}\n", config.model.model, task->name(),
             grouped(plan.parameters), task->summary(), train.precision, train.device);
  const MemoryVerdict verdict = judge(run, plan, budget);
  if (plan.complete) {
    print_memory(run, plan, budget);
    print_recompute(run, plan);
  }
  if (verdict.fit != Fit::fits)
    print_line("{}: {}", verdict.fit == Fit::exceeds ? "too much" : "warning", verdict.text);
  print_now("");
  if (verdict.fit == Fit::exceeds) {
    print_line("\nIts speed is not measured, since its steps do not fit.");
    return 0;
  }
  if (flags.seconds == 0) return 0;
  if (plan.counted_layers > 0) {
    print_line("\nIts speed is not measured, since a step of so many layers takes long.");
    return 0;
  }
  PlannedRun measured = run;
  if (plan.counted_tokens > 0) measured.batch = first_tokens(run.batch, plan.counted_tokens);
  RunSpeed speed;
  {
    PercentLine line("measuring steps");
    speed = measure_run_speed(measured, flags.seconds,
                              [&](double done) { line(static_cast<std::int64_t>(100 * done), 100); });
  }
  if (plan.counted_tokens > 0) {
    print_line("\nIts speed is measured with rows of {} tokens, and their times are multiplied.",
               grouped(plan.counted_tokens));
    const double times =
        static_cast<double>(run.batch.tokens.dim(1)) / static_cast<double>(plan.counted_tokens);
    speed.tokens = run.batch.tokens.elements() * train.accumulate;
    speed.step.median *= times;
    speed.evaluation_seconds *= times;
  }
  print_speed(run, *task, speed);
  return 0;
}

Described describe_plan(CLI::App& command) {
  const auto flags = std::make_shared<PlanFlags>();
  add_option(command, "--seconds", flags->seconds,
             "Seconds in which steps are measured, at least one step; 0: memory alone",
             number_between(0, 1e6));
  flags->run.trains = true;
  flags->run.add_to(command);
  command.footer(fmt::format(
      "Takes the configuration, the preset and the flags of `{} train`, which checks the memory too before it begins.",
      program_name()));
  return {[flags, &app = *command.get_parent()] {
    return naming_flags(flags->run.given_short(), [&] { return run_plan(*flags, app); });
  }};
}

}  // namespace

Command commands::plan() {
  return {"plan", "Say what a run takes before it begins: memory, tokens a second, time to its end",
          Computes::products, Results::printed, describe_plan};
}

}  // namespace eddy::app
