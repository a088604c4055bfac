// The commands of the program, and what they share: options, checks of what options name, and standard output.
//
// Each add_x_command adds one command to the command line. When the user chose that command, it sets `action` to
// what runs once the whole line is parsed. An action returns the exit status, or throws an eddy::Error.
//
// Predictable failures are reported before the work begins. CLI11's own checks of numbers accept too much: its
// conversions turn -1 into the largest unsigned number and truncate what is too large, and its ranges accept a NaN.
//
// Writes to standard output are checked. A full disk is an error. A reader that closes the pipe, as `head` does in
// `eddy models | head`, ends the program without one. A command whose results are files goes on without output.
#pragma once

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/app/measure/kernels/prove.h"
#include "train/config/config_flags.h"
#include "train/config/run_config.h"
#include "train/files/own_file.h"
#include "train/generate/generate.h"
#include "train/run/checkpoint.h"

namespace eddy::training {
class Ranks;
}  // namespace eddy::training

namespace eddy::app {

void add_train_command(CLI::App& app, std::function<int()>& action);
void add_plan_command(CLI::App& app, std::function<int()>& action);
void add_reproduce_command(CLI::App& app, std::function<int()>& action);
void add_eval_command(CLI::App& app, std::function<int()>& action);
void add_compare_command(CLI::App& app, std::function<int()>& action);
void add_inspect_command(CLI::App& app, std::function<int()>& action);
void add_watch_command(CLI::App& app, std::function<int()>& action);
void add_report_command(CLI::App& app, std::function<int()>& action);
void add_draw_command(CLI::App& app, std::function<int()>& action);
void add_tokenizer_command(CLI::App& app, std::function<int()>& action);
void add_generate_command(CLI::App& app, std::function<int()>& action);
void add_chat_command(CLI::App& app, std::function<int()>& action);
void add_export_command(CLI::App& app, std::function<int()>& action);
void add_import_command(CLI::App& app, std::function<int()>& action);
void add_check_command(CLI::App& app, std::function<int()>& action);
// How the program has a GPU's kernels tried: by its command check, with the user's cache and lines on standard error.
ProveOptions program_trials();
void add_info_command(CLI::App& app, std::function<int()>& action);
void add_models_command(CLI::App& app, std::function<int()>& action);
void add_keys_command(CLI::App& app, std::function<int()>& action);
void add_tasks_command(CLI::App& app, std::function<int()>& action);
void add_bench_command(CLI::App& app, std::function<int()>& action);
void add_dump_command(CLI::App& app, std::function<int()>& action);
void add_learn_command(CLI::App& app, std::function<int()>& action);
void add_completion_command(CLI::App& app, std::function<int()>& action);

// Has the command line set `action` to `run` when the user chose this command.
void on_chosen(CLI::App& command, std::function<int()>& action, std::function<int()> run);

// Returns the parsed command line, quoted for a shell: "eddy train --run out --data 'my texts'".
std::string command_line_of(const CLI::App& app);

// Adds an option whose value is checked and whose default the help shows.
template <class Value>
CLI::Option* add_option(CLI::App& command, const char* name, Value& value, const char* help,
                        const CLI::Validator& check) {
  return command.add_option(name, value, help)->check(check)->capture_default_str();
}

// Accepts a whole number from 0 to 2^64 - 1.
CLI::Validator seed_number();

// Accepts a whole number from `low` to `high`.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

// Accepts a number from `low` to `high`, but no NaN.
CLI::Validator number_between(double low, double high);

// Refuses an empty name, which an unset shell variable leaves behind and which would count as no option at
// all.
CLI::Validator not_empty();

// Adds the run that a command works with, RUN.
void add_run_argument(CLI::App& command, std::string& path);

// Adds --temperature, --top-k, --top-p and --seed.
void add_sampling_options(CLI::App& command, training::SampleOptions& sample);

// Adds --checkpoint: latest, best, newest-whole or step-N (is_checkpoint_name in train/run/run_folder.h).
void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help);

// Adds --precision and --device.
void add_precision_option(CLI::App& command, std::string& precision);
void add_device_option(CLI::App& command, std::string& device);

// A configuration key, and the flag that a command has in its place: "train.sequence", "--sequence".
struct KeyFlag {
  const char *key, *flag;
};
// Returns what `work` returns. Its errors name these flags in place of their keys.
// errors: Error.
int naming_flags(const std::vector<KeyFlag>& flags, const std::function<int()>& work);

// What describes a new run: a configuration file, --preset, --data, and a flag for every key. It must live until the
// line is parsed.
struct NewRunOptions {
  std::string config, preset, data;
  training::RunConfig defaults;
  training::ConfigFlags keys;

  void add_to(CLI::App& command);
  // The keys that flags give, --data among them.
  // errors: ValueError for --data and --data.path.
  std::map<std::string, std::string> texts(const char* command) const;
  // The short flags that were given.
  std::vector<KeyFlag> given_short() const;
  // The configuration, completed and validated, with what a run that starts from the weights of another takes from it
  // (`start`; null for none). `notes` gets a warning for each group of keys that nothing reads.
  // errors: ConfigError; IoError.
  training::RunConfig gathered(const char* command, std::vector<std::string>& notes,
                               const training::RunConfig* start = nullptr) const;
};
// Has a value of --threads override that of the configuration, which training would apply later.
void take_threads(training::RunConfig& config, const CLI::App& app);

// As run_on_ranks in train/app/launch/team.h, with the threads that the user chose.
int run_on_ranks(const CLI::App& app, const std::function<int(training::Ranks*)>& command);

// Where the page of a run is served.
struct WatchOptions {
  std::string address = "127.0.0.1";
  int port = 0;  // 0: the first free one

  // `when` begins the help of each option.
  void add_to(CLI::App& command, const std::string& when);
};

// Starts `eddy watch` on a run's folder, which may not be there yet, as a process that ends after this one.
// errors: ConfigError for a build without a server; IoError.
void start_watching(const std::string& run, const WatchOptions& options);

// The run that a command computes with.
struct RunOptions {
  std::string path, checkpoint = "latest", precision = "f32", device = "cpu";
};

// Loads the run that the options of `command` name, in their precision and on their device.
// errors: those of load_run; ConfigError and DeviceError for a device or precision that is not to be had.
training::LoadedRun load_run(const char* command, const RunOptions& options);

// The same for a run that reads texts; `end` ends the error for any other.
// errors: also ValueError.
training::LoadedRun load_text_run(const char* command, const RunOptions& options, const char* end = "");

// What is said where the system refuses memory.
inline constexpr const char* kOutOfMemory =
    "out of memory (lower --train.batch, --train.sequence or --model.context, or take a smaller model)";

// Refuses rows of tokens that are more than the memory there is, before any is made.
// errors: OutOfMemoryError, which names the two flags.
void require_memory_of_rows(const std::string& where, const char* rows_flag, std::int64_t rows,
                            const char* length_flag, std::int64_t length);

// What to say of a run whose loss is not finite.
std::string diverged_text(const RunOptions& options);

// Refuses an output file that could not be written later, or that is there and none of this kind. Removes what
// killed processes left beside it. From here on the command has another result than what it prints
// (keep_on_without_output).
// errors: IoError; the text begins with `where`.
void check_output(const std::string& where, const std::string& file, const training::OwnKind& kind);
// Refuses two flags that name one file, which both would write; an empty name is none.
// errors: ValueError; the text begins with `where`.
void check_two_files(const std::string& where, const char* flag, const std::string& file,
                     const char* other_flag, const std::string& other);

// Thrown when the reader has closed the output. It is not an eddy::Error, since it is no failure.
struct OutputClosed {};

// Returns what standard input gives until its end: a text that the flag of `where` is to give.
// errors: ValueError for more than 16 MiB, since an endless text (`yes |`) must not fill the memory; IoError.
std::string read_standard_input(const std::string& where);

// From here on a failed write to standard output throws nothing, and what is printed is lost.
void keep_on_without_output();
// Whether something that was printed has been lost.
bool output_is_lost();
// Says at the end of a command why something was lost, unless the reader left. Where what is printed is a result
// too, that is an error.
// errors: IoError.
void report_lost_output(bool is_result);

// Writes to standard output, made safe for a terminal whatever names and texts hold (printable() in
// train/words/human_text.h).
// errors: OutputClosed; IoError; none with keep_on_without_output.
void print(std::string_view text);
// Writes the bytes as they are.
// errors: as print.
void print_bytes(std::string_view bytes);
// The same, and flushes: training writes to standard output too, not through print().
void print_now(std::string_view text);
template <class... Args>
void print_line(fmt::format_string<Args...> text, Args&&... args) {
  print(fmt::format(text, std::forward<Args>(args)...) + '\n');
}
// Writes a line to standard error, made safe too; errors are ignored.
void say(std::string_view text);
// Flushes what is buffered, also by std::cout and stdio.
// errors: as print.
void flush_output();

// Whether standard output (1) or standard error (2) is a terminal.
bool is_terminal(int stream);

// Makes text that arrives in pieces of any length safe for a terminal: it returns whole characters, through
// printable(). A character cut by the end of a piece waits for the next one.
class TerminalText {
 public:
  std::string take(std::string_view bytes);
  // Returns what still waits.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace eddy::app
