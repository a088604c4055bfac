// `eddy reproduce`: trains and measures a table of one of the papers, or one's own.
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/views/table.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct ReproduceFlags {
  ReproduceOptions options;
  std::vector<std::string> set;
  std::string device;
  bool list = false;
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

int list_tables() {
  Table tables, columns;
  for (const TableEntry& entry : reproduce_tables())
    tables.rows.push_back(
        {entry.name,
         fmt::format("{}{}", entry.summary,
                     entry.tasks.empty() ? "" : fmt::format(" (--task {})", fmt::join(entry.tasks, " | ")))});
  print(to_text(tables));
  print_line(
      "\nA table of one's own: {} reproduce FILE.toml (train/app/reproduce/README.md). Its columns may be numbers of the "
      "task, such as loss, and:",
      program_name());
  for (const CommonColumn& column : common_columns()) columns.rows.push_back({column.key, column.about});
  print(to_text(columns, 2));
  return 0;
}

int run_reproduce(ReproduceFlags& flags, const CLI::App& command, Ranks* ranks) {
  flags.options.ranks = ranks;
  if (flags.list) return list_tables();
  if (flags.options.table.empty()) {
    for (const char* name : {"--rows", "--scale", "--task", "--data", "--runs", "--set", "--windows",
                             "--seeds", "--jobs", "--dry-run"})
      if (command.count(name) > 0)
        fail<ConfigError>("reproduce: {} and no table (name one; without options all tables are listed)",
                          name);
    return list_tables();
  }
  if (ranks != nullptr && flags.options.jobs > 1)
    fail<ConfigError>("reproduce: --jobs {} under a launcher, whose processes share each row (leave one out)",
                      flags.options.jobs);
  take_overrides(flags);
  if (!flags.options.dry_run) keep_on_without_output();
  const ReproduceEnd end = reproduce(flags.options, print_now);
  return end == ReproduceEnd::interrupted ? 130 : end == ReproduceEnd::failed ? 3 : 0;
}

Described describe_reproduce(CLI::App& command) {
  const auto flags = std::make_shared<ReproduceFlags>();
  ReproduceOptions& options = flags->options;
  command.add_option("TABLE", options.table,
                     "FAMILY/TABLE, or a table of one's own, FILE.toml; without one, all tables are listed");
  command.add_option("--rows", options.rows, "Names of rows, separated by commas (default: all)")
      ->delimiter(',');
  command
      .add_option(
          "--scale", options.scale,
          "small: sizes for a few CPU cores; paper: the sizes of the paper; tiny: seconds or a few minutes, to try the command")
      ->capture_default_str();
  command.add_option("--task", options.task, "Variant of the table, where it has some");
  add_option(command, "--data", options.data, "File or folder of the table's data (default: see the table)",
             not_empty());
  command.add_option("--runs", options.runs, "Folder of the runs")->capture_default_str();
  command.add_option("--set", flags->set, "KEY=VALUE of the configuration, for every row; may be repeated")
      ->allow_extra_args(false);
  command
      .add_option("--windows", options.windows,
                  "For tables by length: windows measured at each length, fewer at the longest")
      ->transform(whole_number(1, 1'000'000'000));
  command
      .add_option("--seeds", options.seeds,
                  "Train every row so many times, with seeds one after another: mean and standard deviation "
                  "(default: as the table says)")
      ->transform(whole_number(1, 1'000));
  command
      .add_option(
          "--jobs", options.jobs,
          "Train so many rows side by side, each in a process with its share of the threads (default: 1)")
      ->transform(whole_number(1, 256));
  command.add_flag("--list", flags->list,
                   "List the tables, and the columns that a table of one's own may have");
  command.add_flag("--dry-run", options.dry_run,
                   "Show the rows, their configurations and how long they take, and exit");
  add_option(command, "--device", flags->device,
             "Where every row is trained and measured, the same as --set train.device (default: cpu)",
             CLI::IsMember(value_names<DeviceChoice>()));
  return {[flags, &command, &app = *command.get_parent()] {
    return run_on_ranks(app, [&](Ranks* ranks) { return run_reproduce(*flags, command, ranks); });
  }};
}

}  // namespace

Command commands::reproduce() {
  return {"reproduce", "Train and measure the rows of a paper's table, and show its numbers beside ours",
          Computes::products, Results::files, describe_reproduce};
}

}  // namespace eddy::app
