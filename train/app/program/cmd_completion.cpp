// `eddy completion`: a script that completes the commands and flags of the program, by the name that it has, in a
// shell, from its own list of options. `cmake --install` installs both of `eddy`.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
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
#include "embedded/train/app/program/completion.bash"
      ;
  if (shell == "zsh")
    script =
#include "embedded/train/app/program/completion.zsh"
        ;
  const std::string name = shell_quoted(program_name());
  std::string function = "_" + program_name();
  std::replace_if(
      function.begin(), function.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  for (const auto& [mark, text] : {std::pair{"    # @CASES@\n", cases(app)},
                                   {"@COMMANDS@", fmt::format("{}", fmt::join(commands_of(app), " "))},
                                   {"@FUNCTION@", function},
                                   {"@PROGRAM@", name}})
    for (std::size_t at = 0; (at = script.find(mark, at)) != std::string::npos; at += text.size())
      script.replace(at, std::string_view(mark).size(), text);
  return script;
}

Described describe_completion(CLI::App& command) {
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  return {[shell, &app = *command.get_parent()] {
    print(script_of(*shell, app));
    return 0;
  }};
}

}  // namespace

Command commands::completion() {
  return {"completion", "Print a script that completes commands and flags in a shell", Computes::nothing,
          Results::printed, describe_completion};
}

}  // namespace eddy::app
