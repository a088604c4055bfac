// The commands of the program. Each function adds one to the command line; when the user asked for that
// command, `action` is what to run once the whole line was understood. An action returns the exit status, or
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
void add_info_command(CLI::App& app, std::function<int()>& action);
void add_models_command(CLI::App& app, std::function<int()>& action);
void add_bench_command(CLI::App& app, std::function<int()>& action);
void add_dump_command(CLI::App& app, std::function<int()>& action);

// The command line that was parsed, in words that a shell takes: "eddy train --run out --data 'my texts'".
std::string command_line_of(const CLI::App& app);

}  // namespace eddy
