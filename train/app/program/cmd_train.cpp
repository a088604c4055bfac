// `eddy train`: starts a new run from a configuration, or resumes one.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tensor/base/format.h"
#include "train/app/measure/kernels/run_kernels.h"
#include "train/app/program/commands.h"
#include "train/app/report/live_report.h"
#include "train/config/config_file.h"
#include "train/config/new_config.h"
#include "train/run/checkpoint.h"
#include "train/run/run_start.h"
#include "train/run/trainer.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct TrainFlags {
  NewRunOptions run;
  TrainRequest request;
  bool print_config = false, dry_run = false, watch = false;
  WatchOptions watching;
};

// A resumed run keeps its own configuration, but for the keys that a file or flags give again.
RunConfig config_to_resume(const TrainFlags& flags) {
  RunConfig config = load_config_of_run(flags.request.resume, flags.request.checkpoint);
  const std::string model = config.model.model, task = config.data.name;
  const DataPaths path = config.data.path;
  ConfigKeys keys = keys_of(config);
  if (!flags.run.config.empty()) keys.read(read_run_config(flags.run.config));
  keys.read_texts(flags.run.texts("train"));
  if (config.data.path != path) flags.run.check_place_of_data(config);
  if (config.model.model != model)
    fail<ConfigError>(
        "train: the model is {}, and --resume goes on with that of the run, {} (leave the model out, or begin a new run "
        "with --run)",
        config.model.model, model);
  if (config.data.name != task)
    fail<ConfigError>(
        "train: the task is {}, and --resume goes on with that of the run, {} (leave data.name out, or begin a new run "
        "with --run)",
        config.data.name, task);
  return config;
}

RunConfig config_of_new_run(TrainFlags& flags) {
  TrainRequest& request = flags.request;
  if (request.init_from.empty()) return flags.run.gathered("train", request.notes);
  const RunConfig run = load_config_of_run(request.init_from, request.checkpoint);
  request.notes.push_back(fmt::format(
      "starts from {}: with its model, its [data] and train.batch {}; all else as given here, or the default",
      request.init_from, run.train.batch));
  return flags.run.gathered("train", request.notes, &run);
}

// Trains, or prints what was asked for, as the only process or as the first of several.
int run_here(TrainFlags& flags, const CLI::App& app) {
  TrainRequest& request = flags.request;
  request.command_line = command_line_of(app);
  const bool resuming = !request.resume.empty();
  if (resuming && (!request.run_dir.empty() || !request.init_from.empty()))
    fail<ValueError>("train: --resume continues a run and excludes --run and --init-from");
  if (!resuming && request.run_dir.empty() && !flags.print_config)
    fail<ValueError>("train: the run has no folder (--run DIR for a new run, --resume DIR to continue one{})",
                     flags.dry_run ? "; --dry-run checks it too, and makes nothing" : "");
  if (request.checkpoint != "latest" && !resuming && request.init_from.empty())
    fail<ValueError>("train: --checkpoint {} and no run to take it from (--resume RUN, or --init-from RUN)",
                     request.checkpoint);
  if (resuming && !flags.run.preset.empty())
    fail<ValueError>("train: --preset is for a new run, and --resume keeps the model of {} (leave it out)",
                     request.resume);
  request.config = resuming ? config_to_resume(flags) : config_of_new_run(flags);
  request.own_data_path = true;
  request.data_given = resuming && (!flags.run.data.empty() || flags.run.keys.given().contains("data.path"));
  take_threads(request.config, app);
  validate(request.config);
  if (flags.print_config) {
    for (const std::string& note : request.notes) say(note);
    const std::string text = config_file_of(request.config);
    print(text.empty() ? "# Nothing differs from the defaults.\n" : text);
    return 0;
  }
  if (flags.dry_run) {
    for (const std::string& note : request.notes) say(note);
    print_line("{}", dry_run(request));
    return 0;
  }
  if (flags.watch) start_watching(resuming ? request.resume : request.run_dir, flags.watching);
  keep_on_without_output();
  const TrainConfig& t = request.config.train;
  const bool tells_of_bf16 = !resuming && value_is(t.device, DeviceChoice::cuda) &&
                             value_is(t.precision, Precision::f32) && !flags.run.gives("train", "precision");
  if (request.ranks == nullptr) {  // of several each would take what was the fastest for it
    request.choose_kernels = [](const PlannedRun& run) { choose_kernels_of_run(run, program_trials()); };
    if (tells_of_bf16)
      request.precision_note = [](const PlannedRun& run) { return bf16_text(run, program_trials()); };
  } else if (tells_of_bf16) {
    request.notes.push_back(bf16_text());
  }
  request.show = LiveReport();
  const TrainEnd end = train(request);
  return end == TrainEnd::interrupted ? 130 : end == TrainEnd::too_many_bad_steps ? 3 : 0;
}

int run_train(TrainFlags& flags, const CLI::App& app) {
  return run_on_ranks(app, [&](Ranks* ranks) {
    flags.request.ranks = ranks;
    return naming_flags(flags.run.given_short(), [&] { return run_here(flags, app); });
  });
}

Described describe_train(CLI::App& command) {
  const auto flags = std::make_shared<TrainFlags>();
  TrainRequest& request = flags->request;
  add_option(command, "--run,--out", request.run_dir,
             "Folder of the new run; must not exist, unless its run ended before the first checkpoint",
             not_empty());
  add_option(
      command, "--resume", request.resume,
      "Folder of a run to continue from its latest checkpoint, or from --checkpoint; with --data also on texts "
      "that came into its folder since",
      not_empty());
  add_option(
      command, "--init-from", request.init_from,
      "Start the new run from the weights of this run or checkpoint: its model and tokenizer are taken, and "
      "characters that are new in --data are added",
      not_empty());
  add_checkpoint_option(command, request.checkpoint,
                        "Checkpoint to continue from, or to start from with --init-from");
  command.add_flag("--print-config", flags->print_config,
                   "Print what differs from the defaults as a configuration file (TOML), and train nothing");
  command.add_flag("--dry-run", flags->dry_run,
                   "Check configuration, data, memory and the run's folder, and make nothing");
  CLI::Option* const watch = command.add_flag(
      "--watch", flags->watch,
      fmt::format("Serve the report to a browser while the run trains, at loopback alone ({} watch)",
                  program_name()));
  flags->watching.add_to(command, "With --watch: ");
  for (const char* const of_watch : {"--address", "--port"}) command.get_option(of_watch)->needs(watch);
  flags->run.trains = true;
  flags->run.add_to(command);
  command.footer(fmt::format(
      "{0} plan, with the same configuration and flags, says what a run takes before it begins: memory and time.\n"
      "{0} keys MODEL lists the keys that a model reads, {0} tasks what it can be trained on, with its data sets.\n\n"
      "Going on:\n"
      "  {0} train --resume runs/a --train.steps 9000                  more steps\n"
      "  {0} train --resume runs/a --data texts --train.steps 9000     and texts that came into its folder\n"
      "  {0} train --init-from runs/a --data others --run runs/b       a new run from its weights, on other texts",
      program_name()));
  return {[flags, &app = *command.get_parent()] { return run_train(*flags, app); }};
}

}  // namespace

Command commands::train() {
  return {"train", "Train a model; every configuration key is also a flag", Computes::products,
          Results::files, describe_train};
}

}  // namespace eddy::app
