// `eddy eval`: measures a trained model on its task, or on other data of the same kind.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"
#include "tensor/memory/memory_limit.h"
#include "train/app/program/commands.h"
#include "train/app/report/loss_by_position.h"
#include "train/app/views/html_page.h"
#include "train/config/run_config.h"
#include "train/eval/learning_verdict.h"
#include "train/files/output_file.h"
#include "train/plan/machine_memory.h"
#include "train/record/percent_line.h"
#include "train/record/run_series.h"
#include "train/run/checkpoint.h"
#include "train/step/shared_steps.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

struct EvalFlags {
  RunOptions run;
  std::string data, by_position, split = value_name(EvalOptions{}.split);
  std::int64_t sequence = 0, sampled = 0, micro_batches = 0;
  EvalOptions options;

  EvalFlags() { options.batch = 0; }
};

CLI::Validator power_of_two() {
  return {[](std::string& text) {
            std::int64_t number = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
            return error == std::errc() && end == text.data() + text.size() && number > 0 &&
                           number <= 1 << 20 && std::has_single_bit(static_cast<std::uint64_t>(number))
                       ? std::string()
                       : text + " is not a power of two up to 1048576";
          },
          ""};
}

EvalResult measure(const Task& task, const Model& model, const EvalOptions& options) {
  PercentLine line("eval");
  return task.evaluate(model, options, std::ref(line));
}

// What simple predictors reach on the validation split: of the run's text as the run keeps it.
void print_baselines(const Task& task, const LoadedRun& run, const EvalFlags& flags) {
  if (!value_is(flags.split, Split::valid)) return;
  std::optional<Baselines> found;
  if (flags.data.empty()) found = run.state.baselines;
  if (!found) found = task.baselines();
  if (!found) return;
  for (const auto& [name, value] : found->listed()) print_line("{}: {:.4g} bits per byte", name, value);
  if (!found->no_xz.empty()) print_line("xz: not measured ({})", found->no_xz);
  print_line("baselines: {}", found->samples());
}

// How often the run has read its text, and whether more steps will help.
void print_learning_verdict(const Task& task, const LoadedRun& run, const EvalFlags& flags) {
  const std::int64_t epoch = run.state.epoch_tokens > 0 ? run.state.epoch_tokens
                             : flags.data.empty()       ? task.epoch_tokens()
                                                        : 0;
  if (epoch == 0 || run.step == 0) return;
  const double epochs = epochs_in(run.state.tokens, epoch);
  print_line("epochs: {:.3g} of the training text", epochs);
  const std::filesystem::path metrics = run.checkpoint.parent_path().parent_path() / "metrics.jsonl";
  std::error_code error;
  if (run.config.train.eval_every == 0 || !std::filesystem::is_regular_file(metrics, error)) return;
  const std::int64_t after = last_growth(run.state.text_phases);
  const RunSeries series = RunSeries::read(metrics, after);
  print_line("verdict: {}", learning_verdict(series.points(run.step), epochs, series.promise(run.step)));
}

int eval_run(const EvalFlags& flags, const CLI::App& command, Ranks* ranks, LoadedRun run) {
  const MemoryLimit limit(allocator(kCpu), free_memory());
  TaskArguments arguments;
  arguments.config = run.config;
  arguments.tokenizer = std::move(run.tokenizer);
  arguments.run = flags.run.path;
  arguments.training = false;
  arguments.messages = &std::cerr;
  if (flags.data.empty())
    expect_data_of(run, arguments);
  else
    arguments.config.data.path = flags.data;
  if (flags.sequence > 0) arguments.config.train.sequence = flags.sequence;
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  if (!run.state.task.empty()) {
    const std::string state_file = (run.checkpoint / "state.json").string();
    task->load(json_of_text(run.state.task, state_file), state_file);
  }

  EvalOptions options = flags.options;
  options.split = value_named<Split>(flags.split).value();
  if (options.batch == 0) options.batch = run.config.train.batch;
  options.by_position = !flags.by_position.empty();
  options.capture = value_is(run.config.train.capture, StepCapture::automatic);
  options.share = {flags.micro_batches > 0 ? flags.micro_batches : run.config.train.micro_batches, ranks};
  if (ranks != nullptr) {
    RunConfig shared = run.config;
    shared.train.micro_batches = options.share.parts;
    shared.train.device = flags.run.device;
    shared.train.precision = flags.run.precision;
    check_ranks("eval", "--micro-batches", shared, ranks->size());
    send_model(*ranks, shared, *run.model);
  }
  if (options.score_last > 0 && task->tokenizer() == nullptr)
    fail<ValueError>("eval: the task {} is not read in windows (leave out --score-last)",
                     run.config.data.name);
  if (options.score_last > task->row_length() && task->row_length() > 0)
    fail<ValueError>("eval: --score-last {} of rows of {} tokens (at most {}, or longer rows by --sequence)",
                     options.score_last, task->row_length(), task->row_length());
  if (!flags.data.empty() && !task->reads_files())
    fail<ValueError>("eval: the task {} generates its examples (leave out --data)", run.config.data.name);
  if (flags.sequence > 0 && task->row_length() == 0)
    fail<ValueError>("eval: the task {} has rows of its own length (leave out --sequence)",
                     run.config.data.name);
  EvalOptions drawn = options;
  drawn.batches = std::max(options.batches, flags.sampled);
  if (command.count("--seed") > 0 && !task->uses_seed(drawn)) {
    drawn.batches = 1;
    if (task->uses_seed(drawn))
      fail<ValueError>("eval: --seed has no effect when all of {} is read once (add --batches or --sampled)",
                       flags.split);
    fail<ValueError>("eval: --seed has no effect when {} is read from its beginning (leave out --seed)",
                     flags.split);
  }
  if (options.clear_state && !task->carries_state())
    fail<ValueError>(
        "eval: {} carries no state from batch to batch that could be cleared (data.order {}, train.carry_state {})",
        flags.run.path, run.config.data.order, run.config.train.carry_state);
  // Of a text that is read once no more rows are read than it has.
  if (!task->reads_files() || drawn.batches > 0)
    require_memory_of_rows("eval", "--batch", options.batch, "--sequence", task->row_length());
  const EvalResult result = measure(*task, *run.model, options);
  if (!result.uncaptured.empty()) say(result.uncaptured);
  const bool text = task->tokenizer() != nullptr;
  print_line("step: {}", run.step);
  print_line("precision: {}{}", flags.run.precision,
             precision_note(run.config.train.precision, flags.run.precision));
  print_line("data: {} ({})", task->name(), flags.split);
  if (task->carries_state())
    print_line("state: {}", options.clear_state ? "cleared at every segment"
                            : result.carried    ? "carried"
                                                : "none to carry");
  print_line("loss: {:.6f} nats per {}", result.loss, text ? "token" : "target");
  if (!std::isfinite(result.loss)) say(diverged_text(flags.run));
  if (result.standard_error >= 0) print_line("standard error: {:.6f}", result.standard_error);
  if (text) {
    print_line("bits per token: {:.6f}", result.bits_per_token());
    print_line("perplexity: {:.6g}", result.perplexity());
  }
  for (const auto& [name, value] : result.metrics) print_line("{}: {:.6g}", with_spaces(name), value);
  if (text) {
    print_baselines(*task, run, flags);
    print_learning_verdict(*task, run, flags);
  }
  for (const auto& [name, value] : result.diagnostics) print_line("{}: {:.6g}", with_spaces(name), value);
  if (flags.sampled > 0) {
    EvalOptions random = options;
    random.batches = flags.sampled;
    random.by_position = false;
    const EvalResult sampled = measure(*task, *run.model, random);
    if (!std::isfinite(sampled.standard_error))
      fail<ValueError>("eval: {} has no random batches (leave out --sampled)", task->name());
    const std::string sample = fmt::format("of {} random {} of {}", flags.sampled,
                                           plural(flags.sampled, "batch", "batches"), options.batch);
    print_line("loss {}: {:.6f}, standard error {:.6f}", sample, sampled.loss, sampled.standard_error);
    for (const auto& [name, value] : sampled.metrics)
      print_line("{} {}: {:.6g}", with_spaces(name), sample, value);
  }
  print_line("{}: {}", text ? "tokens" : "targets", result.tokens);
  print_line("{}/s: {:.0f}", text ? "tokens" : "targets",
             static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9));
  if (options.by_position) {
    if (result.position_loss.empty())
      fail<ValueError>("eval: the task {} keeps no losses by position (leave out --by-position)",
                       run.config.data.name);
    std::vector<NamedResult> shown{{options.clear_state ? "state cleared" : "loss", result}};
    // Show the benefit of the state at each position.
    if (result.carried && !options.clear_state) {
      options.clear_state = true;
      shown = {{"state carried", result}, {"state cleared", measure(*task, *run.model, options)}};
      print_line("loss with the state cleared: {:.6f} nats per {}", shown[1].result.loss,
                 text ? "token" : "target");
    }
    const PositionMarks marks{text ? "token" : "target",
                              result.carried ? task->row_length() : segment_length(run.config)};
    if (const double chance = result.chance(); std::isfinite(chance))
      print_line("chance: {:.6f} nats per {}, by how often each comes", chance, marks.target);
    print_line("{}", position_sentence(shown, marks));
    const std::string page = render_loss_by_position(
        fmt::format("{} on {}, loss by position", run.config.model.model, task->name()),
        fmt::format("step {}, {} of {} tokens", run.step, flags.split, result.tokens), shown, marks);
    write_output_file("eval", flags.by_position, page, kPageFile);
    print_line("by position: {}", flags.by_position);
  }
  return 0;
}

int run_eval(const EvalFlags& flags, const CLI::App& command, Ranks* ranks) {
  if (!flags.by_position.empty()) check_output("eval", flags.by_position, kPageFile);
  LoadedRun run = load_run("eval", flags.run);
  return naming_flags({{"train.sequence", "--sequence"},
                       {"train.batch", "--batch"},
                       {"train.micro_batches", "--micro-batches"},
                       {"data.path", "--data"}},
                      [&] { return eval_run(flags, command, ranks, std::move(run)); });
}

Described describe_eval(CLI::App& command) {
  const auto options = std::make_shared<EvalFlags>();
  const CLI::Validator size = whole_number(1, 1'000'000'000);
  EvalOptions& measured = options->options;
  add_run_argument(command, options->run.path);
  add_option(command, "--data", options->data, "File or folder of data (default: the run's)", not_empty());
  add_option(command, "--split", options->split, "Part of the data, cut as the run cuts it",
             CLI::IsMember(value_names<Split>()));
  add_option(command, "--batches", measured.batches,
             "Number of batches, random ones for data.order windows; 0: all of the split once",
             whole_number(0, 1'000'000'000));
  command
      .add_option("--sampled", options->sampled,
                  "Also print the mean over so many random batches, as papers estimate their numbers")
      ->transform(whole_number(2, 1'000'000'000));
  command.add_option("--batch", measured.batch, "Rows of a batch (default: the run's)")->transform(size);
  command.add_option("--sequence", options->sequence, "Tokens of a row (default: the run's)")
      ->transform(size);
  add_option(command, "--seed", measured.seed, "Seed of the random batches", seed_number());
  add_checkpoint_option(command, options->run.checkpoint, "Checkpoint of the run");
  add_precision_option(command, options->run.precision);
  add_device_option(command, options->run.device);
  command.add_flag("--clear-state", measured.clear_state,
                   "Clear the recurrent state at every segment; a cache of keys stays if the model has both");
  CLI::Option* score_last =
      command
          .add_option(
              "--score-last", measured.score_last,
              "Read overlapping windows, each without a state, and score only the last so many tokens")
          ->transform(size);
  command.add_option("--from", measured.from, "With --score-last: the token at which the first window ends")
      ->transform(size)
      ->needs(score_last);
  add_option(command, "--by-position", options->by_position,
             "HTML file to write: the loss against the position in the text, with and without the state",
             not_empty());
  command
      .add_option(
          "--micro-batches", options->micro_batches,
          "Parts of a batch, a power of two, which processes share (default: the run's train.micro_batches)")
      ->check(power_of_two());
  return {[options, &command, &app = *command.get_parent()] {
    return run_on_ranks(app, [&](Ranks* ranks) { return run_eval(*options, command, ranks); });
  }};
}

}  // namespace

Command commands::eval() {
  return {"eval", "Measure the loss of a trained model on its task", Computes::products, Results::printed,
          describe_eval};
}

}  // namespace eddy::app
