// `eddy completion`: a script that completes the program's commands and flags in a shell, from its own list
// of options. `cmake --install` installs both.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/program/commands.h"

namespace eddy {
namespace {

// The flags of a command and of the commands below it, in alphabetical order.
std::set<std::string> flags_of(const CLI::App& command) {
  std::set<std::string> flags;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) flags.insert("--" + name);
  for (const CLI::App* below : command.get_subcommands({})) flags.merge(flags_of(*below));
  return flags;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

// A `case` of the shell for each command: its flags, and the commands below it.
std::string cases(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : app.get_subcommands({}))
    text += fmt::format("    {}) flags=\"{}\" commands=\"{}\" ;;\n", command->get_name(),
                        fmt::join(flags_of(*command), " "), fmt::join(commands_of(*command), " "));
  return text;
}

// Returns the script of a shell with its marks replaced.
std::string script_of(const std::string& shell, const CLI::App& app) {
  std::string script =
#include "embedded/train/program/completion.bash"
      ;
  if (shell == "zsh")
    script =
#include "embedded/train/program/completion.zsh"
        ;
  for (const auto& [mark, text] : {std::pair{"    # @CASES@\n", cases(app)},
                                   {"@COMMANDS@", fmt::format("{}", fmt::join(commands_of(app), " "))}})
    script.replace(script.find(mark), std::string_view(mark).size(), text);
  return script;
}

}  // namespace

void add_completion_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands and flags in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  on_chosen(*command, action, [shell, &app] {
    print(script_of(*shell, app));
    return 0;
  });
}

}  // namespace eddy
