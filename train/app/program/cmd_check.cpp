// `eddy check`: verifies the files of a run, or a session, against their digests, or the kernels of a GPU against the
// CPU and against each other.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "tensor/base/format.h"
#include "tensor/system/process.h"
#include "train/app/measure/kernels/prove.h"
#include "train/app/program/commands.h"
#include "train/app/views/table.h"
#include "train/fetch/named_data.h"
#include "train/files/text_file.h"
#include "train/generate/session.h"
#include "train/record/run_series.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

struct CheckFlags {
  std::string path;
  bool all = false;
  std::string device;
  std::vector<std::string> trials;  // of a process that tries kernels (prove.h)
};

const char* word_for(FileCondition condition) {
  constexpr const char* kWords[] = {"whole", "DAMAGED", "MISSING", "UNREADABLE"};
  return kWords[static_cast<std::size_t>(condition)];
}

// Prints one line and counts what is wrong.
class Checks {
 public:
  void add(const FileCheck& check) {
    std::error_code error;
    const auto bytes = fs::file_size(check.file, error);
    print_line("{:<10}  {:>10}  {}{}{}", word_for(check.condition),
               error ? "-" : human_bytes(static_cast<std::int64_t>(bytes)), check.file.string(),
               check.problem.empty() ? "" : ": ", check.problem);
    flush_output();
    if (!check.problem.empty()) ++wrong_;
  }
  // Checks a file that has no digest: `problem` reads it and returns what is wrong. A missing one is no
  // error.
  template <class Problem>
  void add_if_there(const fs::path& file, const Problem& problem) {
    std::error_code error;
    if (fs::symlink_status(file, error).type() == fs::file_type::not_found) return;
    FileCheck check{file, FileCondition::whole};
    try {
      check.problem = problem(file);
      if (!check.problem.empty()) check.condition = FileCondition::damaged;
    } catch (const FormatError& wrong) {
      check.condition = FileCondition::damaged;
      check.problem = wrong.what();
    } catch (const std::exception& refused) {
      check.condition = FileCondition::unreadable;
      check.problem = refused.what();
    }
    add(check);
  }
  int wrong() const { return wrong_; }

 private:
  int wrong_ = 0;
};

std::string problem_of_json(const fs::path& file) {
  static_cast<void>(read_json_file(file));
  return "";
}

std::string problem_of_metrics(const fs::path& file) {
  const Metrics metrics = RunSeries::read(file).records();
  if (metrics.foreign == 0) return "";
  return fmt::format("{} {}, the first is {} (a resumed run leaves them out)", metrics.foreign,
                     plural(metrics.foreign, "line is no record", "lines are no records"),
                     metrics.first_foreign);
}

// What is wrong with `latest` or `best`, by the rule of the commands that load a run: a missing one is no error
// where a checkpoint is taken in its place.
std::string problem_of_pointer(const fs::path& file) {
  for (Pointer pointer = read_pointer(file);;) {
    if (pointer.problem.empty() || (pointer.missing && file.filename() == "best")) return "";
    if (pointer.missing && !newest_whole_checkpoint(file.parent_path().parent_path()).empty()) return "";
    const Pointer again = read_pointer(file);  // the run may have saved, and removed what was named
    if (again.problem == pointer.problem) return "it " + pointer.problem;
    pointer = again;
  }
}

void check_pointer(const fs::path& file, Checks& checks) {
  const std::string problem = problem_of_pointer(file);
  if (!problem.empty() || !read_pointer(file).missing)
    checks.add({file, problem.empty() ? FileCondition::whole : FileCondition::damaged, 0, problem});
}

// The checkpoints to check, newest first: all, or those that `latest` and `best` name and the newest.
std::vector<fs::path> chosen_checkpoints(const fs::path& run, bool all) {
  std::vector<fs::path> found = checkpoints_of_run(run);
  if (all || found.empty()) return found;
  const fs::path folder = run / "checkpoints", newest = found.front();
  const std::string latest = read_pointer(folder / "latest").name, best = read_pointer(folder / "best").name;
  std::erase_if(found, [&](const fs::path& checkpoint) {
    return checkpoint.filename() != latest && checkpoint.filename() != best && checkpoint != newest;
  });
  return found;
}

// The files of a checkpoint; none when the run that trains removes it meanwhile.
std::vector<FileCheck> check_held(const fs::path& checkpoint) {
  for (;;) {
    std::error_code error;
    if (!fs::exists(checkpoint, error)) return {};
    try {
      const CheckpointHold held(checkpoint);
      std::vector<FileCheck> files = check_checkpoint(checkpoint);
      if (held.in_place()) return files;
    } catch (const IoError& refused) {
      if (fs::exists(checkpoint, error)) return {{checkpoint, FileCondition::unreadable, 0, refused.what()}};
    }
  }
}

void check_run(const fs::path& run, bool all, Checks& checks) {
  const fs::path folder = run / "checkpoints";
  checks.add_if_there(run / "config.json", problem_of_json);
  checks.add_if_there(run / "tokenizer.json", problem_of_json);
  checks.add_if_there(run / "metrics.jsonl", problem_of_metrics);
  for (const char* pointer : {"best", "latest"}) check_pointer(folder / pointer, checks);
  for (const fs::path& checkpoint : chosen_checkpoints(run, all))
    for (const FileCheck& check : check_held(checkpoint)) checks.add(check);
}

// A session may have any name, but for those of a run's files.
// errors: ValueError.
void refuse_file_of_run(const fs::path& file) {
  const std::string name = file.filename().string();
  const bool is_pointer = name == "latest" || name == "best";
  if (!is_pointer && name != "config.json" && name != "tokenizer.json" && name != "metrics.jsonl") return;
  fs::path run = file.parent_path();
  if (is_pointer) run /= "..";
  run = run.empty() ? "." : run.lexically_normal();
  if (!run.has_filename()) run = run.parent_path();
  if (!checkpoints_of_run(run).empty())
    fail<ValueError>("check: {} is a file of a run ({} check {} verifies all of them)", file.string(),
                     program_name(), run.string());
}

int run_check(const CheckFlags& flags) {
  fs::path path(flags.path);
  if (!path.has_filename()) path = path.parent_path();
  std::error_code error;
  Checks checks;
  bool is_run = false;
  if (fs::is_regular_file(path, error)) {
    if (flags.all)
      fail<ValueError>("check: {} is a file (--all is for the checkpoints of a run)", flags.path);
    if (is_checkpoint_file(path.filename().string()) &&
        checkpoint_step(fs::absolute(path).parent_path()) >= 0)
      fail<ValueError>("check: {} is a file of a checkpoint ({} check {} verifies all of them)", flags.path,
                       program_name(), path.has_parent_path() ? path.parent_path().string() : ".");
    refuse_file_of_run(path);
    checks.add_if_there(path, [](const fs::path& file) { return session_problem(file.string()); });
  } else if (checkpoint_step(path) >= 0 || fs::exists(path / "state.json", error)) {
    if (flags.all)
      fail<ValueError>("check: {} is a checkpoint (--all is for all those of its run)", flags.path);
    static_cast<void>(find_checkpoint(flags.path, "latest"));
    for (const FileCheck& check : check_held(path)) checks.add(check);
  } else {
    if (checkpoints_of_run(path).empty()) static_cast<void>(find_checkpoint(flags.path, "latest"));
    is_run = true;
    check_run(path, flags.all, checks);
  }
  if (checks.wrong() == 0) {
    print_line("nothing is wrong");
    return 0;
  }
  std::string whole;
  if (is_run) {
    const fs::path newest = newest_whole_checkpoint(path);
    whole = newest.empty()
                ? "; no checkpoint is whole"
                : fmt::format("; the newest checkpoint that is whole is {}", newest.filename().string());
  }
  print_line("wrong: {} {}{}", checks.wrong(), plural(checks.wrong(), "file"), whole);
  return 1;
}

// Tries every kernel, whatever is known of them.
int check_kernels(const CheckFlags& flags) {
  if (!value_is(flags.device, DeviceChoice::cuda))
    fail<ValueError>("check: --device is {:?} (cuda: its kernels are checked; a run needs no device)",
                     flags.device);
  if (!flags.path.empty() || flags.all) fail<ValueError>("check: a run and --device (give one of them)");
  if (!flags.trials.empty()) return serve_trials(flags.trials, {});
  ProveOptions options = program_trials();
  options.again = options.uncached = true;
  const std::optional<KernelVerdict> verdict = prove_kernels(options);
  if (!verdict) {
    static_cast<void>(cuda_device());  // says why there is none
    fail<DeviceError>("check: there is no GPU");
  }
  std::size_t wrong = 0;
  Table table;
  for (const KernelTrial& trial : verdict->trials) {
    if (!trial.problem.empty()) table.rows.push_back({"WRONG", trial.name, trial.problem});
    if (!trial.left_out.empty()) table.rows.push_back({"left out", trial.name, trial.left_out});
    wrong += trial.problem.empty() ? 0 : 1;
  }
  print(to_text(table));
  print_line("{} of {} kernels agree; taken: {}", verdict->trials.size() - wrong, verdict->trials.size(),
             verdict->kernels());
  return wrong == 0 ? 0 : 1;
}

Described describe_check(CLI::App& command) {
  const auto flags = std::make_shared<CheckFlags>();
  command.add_option("RUN", flags->path, "Folder of a run, or of one checkpoint, or a session's file");
  command.add_flag("--all", flags->all,
                   "Check every checkpoint of the run (default: the newest, the latest and the best)");
  command.add_option("--device", flags->device,
                     "cuda: try every kernel on the GPU, and keep which of them runs take (a minute)");
  command.add_option("--trials", flags->trials)->group("");
  return {[flags] {
    if (!flags->device.empty()) return check_kernels(*flags);
    if (flags->path.empty()) fail<ValueError>("check: RUN is missing (or --device cuda)");
    return run_check(*flags);
  }};
}

}  // namespace

ProveOptions program_trials() {
  ProveOptions options;
  options.command = {own_program(), "check", "--device", value_name(DeviceChoice::cuda), "--trials"};
  options.cache = DataPlaces::standard().cache;
  options.say = [](const std::string& line) { say(line); };
  return options;
}

Command commands::check() {
  return {"check", "Verify the files of a run, or a session, against their digests, or the kernels of a GPU",
          Computes::nothing, Results::printed, describe_check};
}

}  // namespace eddy::app
