// The commands of the program. Each function adds one command to the command line. When the user chose that
// command, it sets `action` to what runs once the whole line is parsed. An action returns the exit status, or
// throws an eddy::Error.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace eddy {

void add_train_command(CLI::App& app, std::function<int()>& action);
void add_reproduce_command(CLI::App& app, std::function<int()>& action);
void add_eval_command(CLI::App& app, std::function<int()>& action);
void add_compare_command(CLI::App& app, std::function<int()>& action);
void add_tokenizer_command(CLI::App& app, std::function<int()>& action);
void add_generate_command(CLI::App& app, std::function<int()>& action);
void add_check_command(CLI::App& app, std::function<int()>& action);
void add_info_command(CLI::App& app, std::function<int()>& action);
void add_models_command(CLI::App& app, std::function<int()>& action);
void add_keys_command(CLI::App& app, std::function<int()>& action);
void add_tasks_command(CLI::App& app, std::function<int()>& action);
void add_bench_command(CLI::App& app, std::function<int()>& action);
void add_dump_command(CLI::App& app, std::function<int()>& action);
void add_completion_command(CLI::App& app, std::function<int()>& action);

// Has the command line set `action` to `run` when the user chose this command.
void on_chosen(CLI::App& command, std::function<int()>& action, std::function<int()> run);

// Returns the parsed command line, quoted for a shell: "eddy train --run out --data 'my texts'".
std::string command_line_of(const CLI::App& app);

}  // namespace eddy
