// `eddy train`: starts a new run from a configuration, or resumes one.
#include <CLI/CLI.hpp>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "train/config/config_file.h"
#include "train/config/new_config.h"
#include "train/files/digest.h"
#include "train/launch/launcher.h"
#include "train/plan/environment.h"
#include "train/program/commands.h"
#include "train/run/checkpoint.h"
#include "train/run/run_start.h"
#include "train/run/trainer.h"
#include "train/step/shared_steps.h"
#include "train/step/stop_signal.h"

namespace eddy {
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
  ConfigKeys keys = keys_of(config);
  if (!flags.run.config.empty()) keys.read(read_run_config(flags.run.config));
  flags.run.keys.apply(keys);
  if (!flags.run.data.empty()) config.data.path = flags.run.data;
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
    fail<ValueError>("train: the run has no folder (--run DIR for a new run, --resume DIR to continue one)");
  if (request.checkpoint != "latest" && !resuming && request.init_from.empty())
    fail<ValueError>("train: --checkpoint {} and no run to take it from (--resume RUN, or --init-from RUN)",
                     request.checkpoint);
  if (resuming && !flags.run.preset.empty())
    fail<ValueError>("train: --preset is for a new run, and --resume keeps the model of {} (leave it out)",
                     request.resume);
  request.config = resuming ? config_to_resume(flags) : config_of_new_run(flags);
  request.data_given = resuming && (!flags.run.data.empty() || flags.run.keys.given().contains("data.path"));
  take_threads(request.config, app);
  validate(request.config);
  if (flags.print_config) {
    for (const std::string& note : request.notes) say(note);
    print(config_file_of(request.config));
    return 0;
  }
  if (flags.dry_run) {
    for (const std::string& note : request.notes) say(note);
    print_line("{}", dry_run(request));
    return 0;
  }
  if (flags.watch) start_watching(resuming ? request.resume : request.run_dir, flags.watching);
  keep_on_without_output();
  const TrainEnd end = train(request);
  return end == TrainEnd::interrupted ? 130 : end == TrainEnd::too_many_bad_steps ? 3 : 0;
}

// What must be the same on all ranks, besides what rank 0 sends them.
struct Fingerprint {
  std::array<char, 64> program{};  // a digest of the program's file
  std::array<char, 32> level{};    // of the CPU kernels
  std::array<char, 256> blas{};    // OpenBLAS: its version and kernels
};

Fingerprint fingerprint_of_this() {
  Fingerprint own;
  program_digest().copy(own.program.data(), own.program.size() - 1);
  blas_in_use().copy(own.blas.data(), own.blas.size() - 1);
  std::string_view(isa_name(isa_level())).copy(own.level.data(), own.level.size() - 1);
  return own;
}

// Rank 0 compares the fingerprints of the others, of any number of them, with its own.
// errors: ConfigError that names the first rank which differs.
void compare_fingerprints(Ranks& ranks) {
  const Fingerprint own = fingerprint_of_this();
  std::vector<Fingerprint> all(static_cast<std::size_t>(ranks.size()), own);
  for (int rank = 1; rank < ranks.size(); ++rank)
    ranks.receive(rank, std::as_writable_bytes(std::span(&all[static_cast<std::size_t>(rank)], 1)));
  for (int rank = 1; rank < ranks.size(); ++rank) {
    const Fingerprint& other = all[static_cast<std::size_t>(rank)];
    if (own.program != other.program)
      fail<ConfigError>("train: {} runs another build of eddy than {} (the same file on all hosts)",
                        ranks.name(rank), ranks.name(0));
    if (own.level != other.level)
      fail<ConfigError>(
          "train: {} has CPU kernels for {} and {} for {}, which differ in their bits (EDDY_CPU_LEVEL={} on all, or the "
          "lower of both)",
          ranks.name(rank), other.level.data(), ranks.name(0), own.level.data(), other.level.data());
    if (own.blas != other.blas)
      fail<ConfigError>(
          "train: {} multiplies with {} and {} with {}, which differ in their bits (the same library on all hosts, and "
          "the same OPENBLAS_CORETYPE)",
          ranks.name(rank), other.blas.data(), ranks.name(0), own.blas.data());
  }
}

void send_fingerprint(Ranks& ranks) {
  const Fingerprint own = fingerprint_of_this();
  ranks.send(0, std::as_bytes(std::span(&own, 1)));
}

// Rank 0 of several: the others do what it says. Its status is that of all: a launcher that saw another one fail would end
// this one too, before it has said why.
int lead(TrainFlags& flags, const CLI::App& app, Ranks& ranks) {
  try {
    compare_fingerprints(ranks);
    flags.request.ranks = &ranks;
    const int status = run_here(flags, app);
    end_work(ranks);
    return status;
  } catch (const std::exception& error) {
    if (ranks.in_exchange) {  // the others wait for the rest of an exchange, which does not come
      say(fmt::format("error: {}", error.what()));
      end_all_ranks(1);
    }
    end_work(ranks);
    throw;
  }
}

// Another rank. Signals are rank 0's to answer.
int follow(Ranks& ranks) {
  const StopOnSignal signals;
  try {
    send_fingerprint(ranks);
    work(ranks);
    return 0;
  } catch (const std::exception& error) {
    say(fmt::format("error: {}: {}", ranks.name(ranks.rank()), error.what()));
    end_all_ranks(1);
  }
}

int run_train(TrainFlags& flags, const CLI::App& app) {
  const bool chosen = app.get_option("--threads")->count() > 0 || std::getenv("EDDY_NUM_THREADS") != nullptr;
  const std::unique_ptr<Ranks> ranks = ranks_of_launcher(!chosen);
  if (ranks == nullptr) return run_here(flags, app);
  return ranks->rank() == 0 ? lead(flags, app, *ranks) : follow(*ranks);
}

}  // namespace

void add_train_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand("train", "Train a model; every configuration key is also a flag");
  const auto flags = std::make_shared<TrainFlags>();
  TrainRequest& request = flags->request;
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
  command->add_flag("--print-config", flags->print_config,
                    "Print what differs from the defaults as a configuration file (TOML), and train nothing");
  command->add_flag("--dry-run", flags->dry_run,
                    "Check configuration, data, memory and the run's folder, and make nothing");
  command->add_flag("--watch", flags->watch,
                    "Serve the report to a browser while the run trains, at loopback alone (eddy watch)");
  flags->watching.add_to(*command, "With --watch: ");
  flags->run.add_to(*command);
  command->footer(
      "eddy plan, with the same configuration and flags, says what a run takes before it begins: memory and time.\n"
      "eddy keys MODEL lists the keys that a model reads, eddy tasks what it can be trained on, with its data sets.\n\n"
      "Going on:\n"
      "  eddy train --resume runs/a --train.steps 9000                  more steps\n"
      "  eddy train --resume runs/a --data texts --train.steps 9000     and texts that came into its folder\n"
      "  eddy train --init-from runs/a --data others --run runs/b       a new run from its weights, on other texts");
  on_chosen(*command, action, [flags, &app] { return run_train(*flags, app); });
}

}  // namespace eddy
