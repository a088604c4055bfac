// `eddy completion`: a script that completes the program's commands and flags in a shell, from its own list
// of options. `cmake --install` installs both.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "train/program/commands.h"
#include "train/program/output.h"

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

std::string bash_script(const CLI::App& app) {
  return fmt::format(R"(# Completes eddy's commands, flags and files in bash.
_eddy() {{
  local flags="--help --version --threads" commands="" current="${{COMP_WORDS[COMP_CWORD]}}"
  case "${{COMP_WORDS[1]}}" in
{}  esac
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{} --help --version" -- "$current"))
  elif [[ "$current" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$commands" -- "$current") $(compgen -f -- "$current"))
  fi
}}
complete -o filenames -F _eddy eddy)",
                     cases(app), fmt::join(commands_of(app), " "));
}

std::string zsh_script(const CLI::App& app) {
  return fmt::format(R"(#compdef eddy
# Completes eddy's commands, flags and files in zsh.
_eddy() {{
  local flags="--help --version --threads" commands=""
  case "${{words[2]}}" in
{}  esac
  if ((CURRENT == 2)); then
    compadd -- {} --help --version
  elif [[ "${{words[CURRENT]}}" == -* ]]; then
    compadd -- ${{=flags}}
  else
    compadd -- ${{=commands}}
    _files
  fi
}}
compdef _eddy eddy)",
                     cases(app), fmt::join(commands_of(app), " "));
}

}  // namespace

void add_completion_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes commands and flags in a shell");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  on_chosen(*command, action, [shell, &app] {
    print_line("{}", *shell == "bash" ? bash_script(app) : zsh_script(app));
    return 0;
  });
}

}  // namespace eddy
