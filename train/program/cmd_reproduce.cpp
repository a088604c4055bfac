// `eddy reproduce`: trains and measures a table of one of the papers, or the table of step times.
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/program/commands.h"
#include "train/reproduce/reproduce.h"
#include "train/reproduce/speed.h"

namespace eddy {
namespace {

constexpr const char* kSpeed = "speed";

struct ReproduceFlags {
  ReproduceOptions options;
  std::vector<std::string> set;
  std::string device;
  SpeedOptions speed;
};

// Splits "train.steps=100" into key and value.
void take_overrides(ReproduceFlags& flags) {
  for (const std::string& text : flags.set) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos || at == 0)
      fail<ConfigError>("reproduce: --set {} (KEY=VALUE, as --set train.steps=100)", text);
    flags.options.set[text.substr(0, at)] = text.substr(at + 1);
  }
  if (flags.device.empty()) return;
  const auto [set, added] = flags.options.set.try_emplace("train.device", flags.device);
  if (!added && set->second != flags.device)
    fail<ConfigError>("reproduce: --device {} and --set train.device={} (they are the same key: give one)",
                      flags.device, set->second);
}

// Refuses options of the other kind of table, which would be ignored silently.
void refuse_options_of_another(const CLI::App& command, bool speed) {
  for (const char* name : {"--task", "--data", "--set", "--windows", "--dry-run"})
    if (speed && command.count(name) > 0)
      fail<ConfigError>("reproduce speed: {} belongs to the papers' tables", name);
  for (const char* name : {"--seconds", "--profile"})
    if (!speed && command.count(name) > 0)
      fail<ConfigError>("reproduce: {} belongs to reproduce speed", name);
}

int run_speed(ReproduceFlags& flags, const CLI::App& command) {
  flags.speed.rows = flags.options.rows;
  flags.speed.runs = flags.options.runs;
  flags.speed.device = flags.device;
  if (command.count("--scale") > 0) flags.speed.scale = flags.options.scale;
  keep_on_without_output();
  const std::vector<SpeedResult> results = reproduce_speed(flags.speed, print_now);
  const bool failed =
      std::any_of(results.begin(), results.end(), [](const SpeedResult& row) { return !row.bench; });
  return failed ? 3 : 0;
}

int run_reproduce(ReproduceFlags& flags, const CLI::App& command) {
  const bool speed = flags.options.table == kSpeed;
  refuse_options_of_another(command, speed);
  if (speed) return run_speed(flags, command);
  if (flags.options.table.empty()) {
    for (const char* name :
         {"--rows", "--scale", "--task", "--data", "--runs", "--set", "--windows", "--dry-run"})
      if (command.count(name) > 0)
        fail<ConfigError>("reproduce: {} and no table (name one; without options all tables are listed)",
                          name);
    for (const TableEntry& entry : reproduce_tables())
      print_line("{:<32}{}{}", entry.name, entry.summary,
                 entry.tasks.empty() ? "" : fmt::format(" (--task {})", fmt::join(entry.tasks, " | ")));
    print_line("{:<32}{}", kSpeed, "times of training steps on a GPU, beside figures given for PyTorch");
    return 0;
  }
  take_overrides(flags);
  if (!flags.options.dry_run) keep_on_without_output();
  const ReproduceEnd end = reproduce(flags.options, print_now);
  return end == ReproduceEnd::interrupted ? 130 : end == ReproduceEnd::failed ? 3 : 0;
}

}  // namespace

void add_reproduce_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand(
      "reproduce",
      "Train and measure the rows of a paper's table, and show its numbers beside ours; or the "
      "table of step times");
  const auto flags = std::make_shared<ReproduceFlags>();
  ReproduceOptions& options = flags->options;
  command->add_option("TABLE", options.table, "FAMILY/TABLE, or speed; without one, all tables are listed");
  command->add_option("--rows", options.rows, "Names of rows, separated by commas (default: all)")
      ->delimiter(',');
  command
      ->add_option(
          "--scale", options.scale,
          "small: sizes for a few CPU cores; paper: the sizes of the paper; tiny: seconds, to try the "
          "command. speed: paper (its default), or small, which takes seconds")
      ->capture_default_str();
  command->add_option("--task", options.task, "Variant of the table, where it has some");
  add_option(*command, "--data", options.data, "File or folder of the table's data (default: see the table)",
             not_empty());
  command->add_option("--runs", options.runs, "Folder of the runs")->capture_default_str();
  command->add_option("--set", flags->set, "KEY=VALUE of the configuration, for every row; may be repeated")
      ->allow_extra_args(false);
  command
      ->add_option("--windows", options.windows,
                   "For tables by length: windows measured at each length, fewer at the longest")
      ->check(whole_number(1, 1'000'000'000));
  command->add_flag("--dry-run", options.dry_run, "Show the rows and their configurations, and exit");
  add_option(*command, "--device", flags->device,
             "Where every row is trained and measured, the same as --set train.device (default: cpu; "
             "speed: cuda, cpu at scale small)",
             CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--seconds", flags->speed.seconds, "speed: seconds of timed steps for each row (10)")
      ->check(number_between(1e-3, 1e6));
  command->add_flag("--profile", flags->speed.profile, "speed: also show where the time of each row goes");
  on_chosen(*command, action, [flags, command] { return run_reproduce(*flags, *command); });
}

}  // namespace eddy
