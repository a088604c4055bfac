// `eddy draw`: pictures of runs as SVG files. `curves` draws a measure of many runs, `state` what a model keeps.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/memory/memory_limit.h"
#include "train/app/inspect/state_numbers.h"
#include "train/app/program/commands.h"
#include "train/app/report/curves.h"
#include "train/app/views/svg_picture.h"
#include "train/app/views/table.h"
#include "train/plan/machine_memory.h"
#include "train/record/percent_line.h"
#include "train/record/run_series.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

struct CurveFlags {
  std::vector<std::string> groups;
  std::string measure = "loss", out = "curves.svg", title;
  double good = 1;
  bool asks_good = false;  // whether --good was given
};

// Refuses the name of a picture of another kind, which programs would not open.
void check_picture(const std::string& file) {
  const std::string end = std::filesystem::path(file).extension().string();
  for (const char* const other : {".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf"})
    if (end == other)
      fail<ValueError>(
          "draw: --out {}: the picture is SVG (name it .svg; browsers show it, Inkscape converts it)", file);
  check_output("draw", file, kPictureFile);
}

// Where NAME ends in NAME=FOLDER, both of which may hold a '=' as in runs/rate=0.1; npos for a folder alone.
std::size_t equals_of(const std::string& given) {
  std::error_code error;
  const auto is_folder = [&](const std::string& path) { return std::filesystem::is_directory(path, error); };
  if (is_folder(given)) return std::string::npos;
  const std::size_t first = given.find('=');
  for (std::size_t at = first; at != std::string::npos; at = given.find('=', at + 1))
    if (is_folder(given.substr(at + 1))) return at;
  return first;
}

int run_curves(const CurveFlags& flags) {
  check_picture(flags.out);
  std::vector<CurveGroup> groups;
  for (const std::string& given : flags.groups) {
    const std::size_t equals = equals_of(given);
    const std::string folder = equals == std::string::npos ? given : given.substr(equals + 1);
    if (equals == 0 || folder.empty())
      fail<ValueError>("draw: {:?} is no NAME=FOLDER, such as mine=runs/mine", given);
    groups.push_back(
        {equals == std::string::npos ? folder : given.substr(0, equals), curves_of(folder, flags.measure)});
  }
  const std::string title = flags.title.empty() ? flags.measure + " by training step" : flags.title;
  write_output_file("draw", flags.out, draw_curves(groups, flags.measure, title), kPictureFile);
  for (const CurveGroup& group : groups) {
    const auto runs = std::ssize(group.curves);
    print_line("{}: {} {}", group.name, runs, plural(runs, "run"));
    if (!flags.asks_good && flags.measure != "accuracy") continue;  // the default, 1, is good of it alone
    const bool less = less_is_better(flags.measure);
    for (const std::int64_t count : {runs - 1, runs})
      if (const auto step = step_for_good(group, flags.good, count, less))
        print_line("  {} of {} reach {:g}{} for good by step {}", count, runs, flags.good,
                   less ? " or less" : "", *step);
  }
  print_line("picture: {}", flags.out);
  return 0;
}

struct StateFlags {
  RunOptions run;
  std::int64_t length = 256, rows = 64, seed = 1, answer = 1;
  std::string out = "state.svg";
};

int draw_state_of(const StateFlags& flags, LoadedRun run) {
  require_memory_of_rows("draw", "--rows", flags.rows, "--length", flags.length);
  const MemoryLimit limit(allocator(kCpu), free_memory());
  TaskArguments arguments;
  arguments.config = run.config;
  const std::int64_t trained = segment_length(run.config);
  arguments.config.train.sequence = flags.length;
  arguments.config.train.batch = flags.rows;
  arguments.config.train.seed = flags.seed;  // other streams than those of training
  arguments.tokenizer = std::move(run.tokenizer);
  arguments.run = flags.run.path;
  expect_data_of(run, arguments);
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  const auto answer = static_cast<std::int32_t>(flags.answer);
  StateStudy study;
  {
    PercentLine line("draw");
    study = study_state(*run.model, task->next(0, 0), answer,
                        [&](std::int64_t done, std::int64_t total) { line(done, total); });
  }
  const std::string name = task->answer_name(answer);
  std::string others = "others";
  // Of two answers the other one has a name too.
  if (run.model->full_config().n_out == 2 && !name.empty()) others = task->answer_name(1 - answer);
  const StateCaption caption{name.empty() ? fmt::format("{}", answer) : name, others, trained};
  write_output_file("draw", flags.out, draw_state(study, caption), kPictureFile);

  print_line("step: {}", run.step);
  print_line("streams: {} of {} {}; training had {}", study.rows, study.time, plural(study.time, "token"),
             trained);
  print_line(
      "right: {:.4f} % of {} {}",
      100 * static_cast<double>(study.right) / static_cast<double>(std::max<std::int64_t>(1, study.answers)),
      study.answers, plural(study.answers, "answer"));
  print_line("state: {} {}", study.numbers.size(), plural(study.numbers.size(), "number"));
  constexpr std::size_t kShown = 5;
  print_line("standard deviations between {} and {}:", caption.answer, caption.others);
  Table table{{"number", "separation", "mean of " + caption.answer, "mean of " + caption.others}, {}, "lr"};
  for (std::size_t i = 0; i < std::min(kShown, study.numbers.size()); ++i) {
    const StateNumber& number = study.numbers[i];
    table.rows.push_back({number.name(), fmt::format("{:.1f}", number.separation),
                          fmt::format("{:.4f}", number.mean), fmt::format("{:.4f}", number.other_mean)});
  }
  print(to_text(table, 2));
  print_line("picture: {}", flags.out);
  return 0;
}

int run_state(const StateFlags& flags) {
  check_picture(flags.out);
  LoadedRun run = load_run("draw", flags.run);
  return naming_flags({{"train.sequence", "--length"}, {"train.batch", "--rows"}, {"train.seed", "--seed"}},
                      [&] { return draw_state_of(flags, std::move(run)); });
}

Described describe_curves(CLI::App& command) {
  const auto drawn = std::make_shared<CurveFlags>();
  command
      .add_option(
          "RUNS", drawn->groups,
          "NAME=FOLDER: what to call it, and a run's folder or one of runs; FOLDER alone is its own name")
      ->required();
  add_option(command, "--measure", drawn->measure, "loss, or a measure beside it: accuracy, bits_per_byte",
             not_empty());
  add_option(
      command, "--good", drawn->good,
      "Print by which step all runs, and all but one, reach this for good, a loss or an error from above; without it only of accuracy",
      number_between(-1e9, 1e9));
  add_option(command, "--title", drawn->title, "What the picture shows, for those who do not see it",
             not_empty());
  add_option(command, "--out", drawn->out, "File to write", not_empty());
  return {[drawn, &command] {
    drawn->asks_good = command.count("--good") > 0;
    return run_curves(*drawn);
  }};
}

Described describe_state(CLI::App& command) {
  const auto shown = std::make_shared<StateFlags>();
  add_run_argument(command, shown->run.path);
  add_option(command, "--length", shown->length, "Tokens of a stream", whole_number(2, 1'000'000));
  add_option(command, "--rows", shown->rows, "Streams", whole_number(1, 100'000));
  add_option(command, "--seed", shown->seed, "Seed of the streams", whole_number(0, 1'000'000'000));
  add_option(command, "--answer", shown->answer, "The answer (class) to tell from the others",
             whole_number(0, 1'000'000'000));
  add_option(command, "--out", shown->out, "File to write", not_empty());
  add_checkpoint_option(command, shown->run.checkpoint, "Checkpoint of the run");
  add_precision_option(command, shown->run.precision);
  add_device_option(command, shown->run.device);
  return {[shown] { return run_state(*shown); }};
}

Described describe_draw(CLI::App& command) {
  command.require_subcommand(0, 1);
  return {nullptr,
          {{"curves",
            "A measure of several runs by step: of runs that differ in their seed, the median and a band",
            Computes::nothing, Results::printed, describe_curves},
           {"state",
            "The number of a run's state that tells one answer best from the others, along fresh streams",
            Computes::products, Results::printed, describe_state}}};
}

}  // namespace

Command commands::draw() {
  return {"draw", "Draw pictures of runs, as SVG files", Computes::nothing, Results::printed, describe_draw};
}

}  // namespace eddy::app
