// `eddy report`: any number of runs side by side, as a page, a table and comma-separated values.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "train/page/html_page.h"
#include "train/program/commands.h"
#include "train/study/curves.h"
#include "train/study/side_by_side.h"

namespace eddy {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string html = "runs.html", csv;
};

int run_report(const ReportFlags& flags) {
  check_output("report", flags.html, kOwnPage);
  if (!flags.csv.empty()) check_output("report", flags.csv, kOwnPoints);
  check_two_files("report", "--html", flags.html, "--csv", flags.csv);
  std::vector<std::string> folders;
  for (const std::string& given : flags.runs)
    for (const std::string& run : runs_in(given, "report"))
      if (std::find(folders.begin(), folders.end(), run) == folders.end()) folders.push_back(run);
  const std::vector<ReportedRun> runs = read_reported_runs(folders);
  const std::vector<SeedGroup> groups = groups_of(runs);
  write_own_file("report", flags.html, side_by_side_page(runs, groups), kOwnPage);
  if (!flags.csv.empty()) write_own_file("report", flags.csv, points_csv(runs), kOwnPoints);

  print(aligned(ends_of(runs, groups)));
  if (const TextTable differing = differences_of(runs, groups); !differing.rows.empty())
    print("\n" + aligned(differing));
  print_line("\npage: {}", flags.html);
  if (!flags.csv.empty()) print_line("points: {}", flags.csv);
  return 0;
}

}  // namespace

void add_report_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand(
      "report", "Lay runs side by side: curves, differences of configuration, and where they ended");
  const auto flags = std::make_shared<ReportFlags>();
  command->add_option("RUN", flags->runs, "Folders of runs, or folders that hold runs; they may be training")
      ->required();
  add_option(*command, "--html", flags->html, "Page to write", not_empty());
  add_option(*command, "--csv", flags->csv, "Also write all points as comma-separated values to this file",
             not_empty());
  command->footer("Runs that differ in train.seed alone are one line with a band.");
  on_chosen(*command, action, [flags] { return run_report(*flags); });
}

}  // namespace eddy
