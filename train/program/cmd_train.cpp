// `eddy train`: starts a new run from a configuration, or resumes one.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "tensor/base/format.h"
#include "train/config/config_file.h"
#include "train/config/config_flags.h"
#include "train/config/new_config.h"
#include "train/fetch/named_data.h"
#include "train/program/commands.h"
#include "train/run/checkpoint.h"
#include "train/run/trainer.h"

namespace eddy {
namespace {

struct TrainFlags {
  std::string config_path, data, preset;
  TrainRequest request;
  RunConfig defaults;
  ConfigFlags keys;
};

std::string names_of_data_sets() {
  std::string names;
  for (const DataSet& set : data_sets()) names += (names.empty() ? "" : ", ") + set.name;
  return names;
}

// A resumed run keeps its own configuration, but for the keys that a file or flags give again.
RunConfig config_to_resume(const TrainFlags& flags) {
  RunConfig config = load_config_of_run(flags.request.resume, flags.request.checkpoint);
  ConfigKeys keys = keys_of(config);
  if (!flags.config_path.empty()) keys.read(read_run_config(flags.config_path));
  flags.keys.apply(keys);
  return config;
}

RunConfig config_of_new_run(TrainFlags& flags) {
  NewConfig gathered;
  TrainRequest& request = flags.request;
  if (!request.init_from.empty()) {
    const RunConfig run = load_config_of_run(request.init_from, request.checkpoint);
    gathered.take_run(run);
    request.notes.push_back(fmt::format(
        "starts from {}: with its model, its [data] and train.batch {}; all else as given here, or the default",
        request.init_from, run.train.batch));
  }
  if (!flags.config_path.empty()) gathered.take_file(flags.config_path);
  if (!flags.preset.empty()) gathered.take_preset(flags.preset, "train");
  std::map<std::string, std::string> given = flags.keys.given();
  if (!flags.data.empty()) given["data.path"] = flags.data;
  gathered.take_flags(given);
  RunConfig config = gathered.completed();
  for (const std::string& line : gathered.unread()) request.notes.push_back("warning: " + line);
  return config;
}

int run_train(TrainFlags& flags, const std::string& command_line, const CLI::Option& threads) {
  TrainRequest& request = flags.request;
  request.command_line = command_line;
  const bool resuming = !request.resume.empty();
  if (resuming && (!request.run_dir.empty() || !request.init_from.empty()))
    fail<ValueError>("train: --resume continues a run and excludes --run and --init-from");
  if (!resuming && request.run_dir.empty())
    fail<ValueError>("train: the run has no folder (--run DIR for a new run, --resume DIR to continue one)");
  if (request.checkpoint != "latest" && !resuming && request.init_from.empty())
    fail<ValueError>("train: --checkpoint {} and no run to take it from (--resume RUN, or --init-from RUN)",
                     request.checkpoint);
  if (resuming && !flags.preset.empty())
    fail<ValueError>("train: --preset is for a new run, and --resume keeps the model of {} (leave it out)",
                     request.resume);
  request.config = resuming ? config_to_resume(flags) : config_of_new_run(flags);
  if (!flags.data.empty()) request.config.data.path = flags.data;
  request.data_given = resuming && (!flags.data.empty() || flags.keys.given().contains("data.path"));
  // The flag overrides the configuration, which training would apply later.
  if (threads.count() > 0 && request.config.train.threads > 0)
    request.config.train.threads = threads.as<std::int64_t>();
  validate(request.config);
  keep_on_without_output();
  const TrainEnd end = train(request);
  return end == TrainEnd::interrupted ? 130 : end == TrainEnd::too_many_bad_steps ? 3 : 0;
}

}  // namespace

void add_train_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand("train", "Train a model; every configuration key is also a flag");
  const auto flags = std::make_shared<TrainFlags>();
  TrainRequest& request = flags->request;
  add_option(*command, "config,--config", flags->config_path,
             "Configuration (TOML or JSON); without one, the defaults", not_empty());
  add_option(*command, "--preset", flags->preset,
             "Model or configuration of a paper, by a name that `eddy models` lists", not_empty());
  add_option(*command, "--run,--out", request.run_dir,
             "Folder of the new run; must not exist, unless its run ended before the first checkpoint",
             not_empty());
  add_option(
      *command, "--resume", request.resume,
      "Folder of a run to continue from its latest checkpoint, or from --checkpoint; with --data also on texts "
      "that came into its folder since",
      not_empty());
  add_option(
      *command, "--init-from", request.init_from,
      "Start the new run from the weights of this run or checkpoint: its model and tokenizer are taken, and "
      "characters that are new in --data are added",
      not_empty());
  add_checkpoint_option(*command, request.checkpoint,
                        "Checkpoint to continue from, or to start from with --init-from");
  add_option(*command, "--data", flags->data,
             ("Short for --data.path: a text file, a folder of texts, or a data set that is fetched once: " +
              names_of_data_sets())
                 .c_str(),
             not_empty());
  flags->keys.add_to(*command, keys_of(flags->defaults));
  command->footer(
      "eddy keys MODEL lists the keys that a model reads, eddy tasks what it can be trained on, with its data sets.\n\n"
      "Going on:\n"
      "  eddy train --resume runs/a --train.steps 9000                  more steps\n"
      "  eddy train --resume runs/a --data texts --train.steps 9000     and texts that came into its folder\n"
      "  eddy train --init-from runs/a --data others --run runs/b       a new run from its weights, on other texts");
  on_chosen(*command, action,
            [flags, &app] { return run_train(*flags, command_line_of(app), *app.get_option("--threads")); });
}

}  // namespace eddy
