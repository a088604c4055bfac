// The command that the user chose, and the parsed command line written out again, for reports.
#include <CLI/CLI.hpp>
#include <string>

#include "train/page/human_text.h"
#include "train/program/commands.h"

namespace eddy {
namespace {

// Returns the options given to one app, with their values.
std::string given_options(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    const bool is_flag = option->get_expected_max() == 0;
    if (!option->get_lnames().empty()) text += " --" + option->get_lnames().front();
    if (!is_flag)
      for (const std::string& value : option->results()) text += " " + shell_quoted(value);
  }
  return text;
}

}  // namespace

void on_chosen(CLI::App& command, std::function<int()>& action, std::function<int()> run) {
  command.callback([&action, run = std::move(run)] { action = run; });
}

std::string command_line_of(const CLI::App& app) {
  std::string text = app.get_name() + given_options(app);
  for (const CLI::App* command : app.get_subcommands()) text += " " + command_line_of(*command);
  return text;
}

}  // namespace eddy
